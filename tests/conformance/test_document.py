"""docs/conformance.md is of the goldens that lie here: the same pictures, the same releases, and no difference without a rule."""
import collections
import importlib.util
import re

import pytest


@pytest.fixture(scope="module")
def rows(source):
    """The list of pictures: path, format, kind, limits, patch, remark."""
    return [line.split("\t") for line in (source / "tests/conformance/pictures.txt").read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def goldens(source):
    return (source / "tests/conformance/goldens.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def document(source):
    return (source / "docs/conformance.md").read_text(encoding="utf-8")


def test_the_goldens_are_of_the_pictures_that_are_there(source, rows, goldens):
    files = {f"conformance/images/{path.name}" for path in (source / "tests/conformance/images").iterdir()}
    assert {row[0] for row in rows if row[0].startswith("conformance/")} == files
    listed = [line.split()[0] for line in goldens if not line.startswith((" ", "#"))]
    assert listed == [row[0] for row in rows]
    assert len(listed) > 150


def test_the_table_counts_these_pictures(rows, document):
    wanted = collections.Counter(f"{row[1]}, {row[2]}" for row in rows)
    found = {kind: int(n) for kind, n in re.findall(r"^\| ((?:JPEG|PNG|WebP|GIF|BMP|TIFF), [^|]+?) \| (\d+) \|", document, re.M)}
    assert found == dict(wanted)
    assert f"| **all** | {len(rows)} |" in document


def test_table_goldens_and_script_name_the_same_releases(source, goldens, document):
    spec = importlib.util.spec_from_file_location("conformance_reference", source / "tools/conformance/reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    named = re.search(r"^\d+ pictures\.  Releases: (.*)\.$", document, re.M).group(1).replace("`", "").split(", ")
    assert named == goldens[0].split("Releases: ")[1].split() == list(reference.RELEASES)


def test_every_rule_stands_in_the_document(source, document):
    rules = (source / "tests/conformance/rules.txt").read_text(encoding="utf-8").splitlines()
    rules = [line.split(None, 5) for line in rules if line and not line.startswith("#")]
    for picture, _, _, outcome, section, words in rules:
        row = next((line for line in document.splitlines() if f"`{picture.rsplit('/', 1)[1]}`" in line and f"| {section} | {words} |" in line), "")
        assert row or outcome == "varies", picture
    assert "no rule" not in document
