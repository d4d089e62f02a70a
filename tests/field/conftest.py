"""What the tests of field reports share: data sets made for one test each (field_set.py)."""
import field_set
import pytest


@pytest.fixture
def field(build, source, stoker, tmp_path):
    return field_set.Sets(stoker, build / "cli/stoker", source / "examples/sample/model", tmp_path)
