"""examples/train_hf.py, as users start it: two processes, and resumed on one."""
import re
import shutil

import pytest
from hf_fixtures import launch, package  # noqa: F401


def losses(said):
    return [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said)]


def test_it_trains_on_two_processes_and_goes_on_with_one(launch, package, source, config, tmp_path):
    copy = tmp_path / "stoker.yaml"      # so that the index does not come to lie in the source tree
    text = config.read_text().replace("model: model", f"model: {config.parent / 'model'}").replace("path: ", f"path: {config.parent}/")
    copy.write_text(text + f"index_dir: {tmp_path}\nmemory: 256MiB\n")
    out = tmp_path / "out"
    said = launch(2, source / "examples/train_hf.py", out, "--config", copy)
    assert re.search(r"waited [\d.]+ s for data, trained [\d.]+ s", said)
    assert sorted(path.parent.name for path in out.glob("*/stoker.state")) == ["checkpoint-10", "checkpoint-20", "checkpoint-23"]
    whole = losses(said)
    shutil.rmtree(out / "checkpoint-23")
    resumed = losses(launch(1, source / "examples/train_hf.py", out, "--config", copy, "--resume"))
    assert len(whole) == 23 and len(resumed) == 3 and resumed == pytest.approx(whole[20:], rel=1e-3)
