"""What tests of tensors share: loaders over the sample set."""
import pytest


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
