"""What tests of tensors share: the package in the build folder, and loaders over the sample set."""
import os
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(os.environ.get("STK_BUILD", pathlib.Path(__file__).resolve().parents[1] / "build")).resolve() / "python"
if any(FOLDER.glob("stoker/_core.*.so")) and str(FOLDER) not in sys.path:
    sys.path.insert(0, str(FOLDER))


@pytest.fixture(scope="session")
def config(source):
    return source / "examples/sample/stoker.yaml"


@pytest.fixture(scope="session")
def index_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("index")


@pytest.fixture
def load(config, index_dir):
    """Open a loader of a class, stoker.torch.Loader unless told; closed at the end."""
    import stoker.torch
    opened = []

    def open_one(*ranks, kind=stoker.torch.Loader, **options):
        loader = kind(config, *ranks, **{"index_dir": index_dir, "workers": 2, "memory": "256MiB", "keep": 2, **options})
        opened.append(loader)
        return loader

    yield open_one
    for loader in opened:
        loader.close()
