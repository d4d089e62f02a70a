"""examples/train_torch.py, as users start it: two processes, and resumed on one."""
import re

import pytest
from hf_fixtures import launch  # noqa: F401


def losses(said):
    return {int(step): float(loss) for step, loss in re.findall(r"step (\d+) loss ([\d.]+)", said)}


def test_it_trains_on_two_processes_and_goes_on_with_one(launch, source, config, tmp_path):
    copy = tmp_path / "stoker.yaml"      # so that the index does not come to lie in the source tree
    text = config.read_text().replace("model: model", f"model: {config.parent / 'model'}").replace("path: ", f"path: {config.parent}/")
    copy.write_text(text + f"index_dir: {tmp_path}\nmemory: 256MiB\n")
    arguments = source / "examples/train_torch.py", tmp_path / "out", "--config", copy
    said = launch(2, *arguments)
    whole = losses(said)
    assert list(whole) == list(range(23)) and whole[22] < whole[0] - 0.5 and re.search(r"waited [\d.]+ s for data, trained [\d.]+ s", said)
    resumed = losses(launch(1, *arguments, "--resume"))
    assert resumed == {step: pytest.approx(whole[step], abs=2e-3) for step in (20, 21, 22)}
    assert losses(launch(1, *arguments)) == {step: pytest.approx(loss, abs=2e-3) for step, loss in whole.items()}
