"""Every field report in scope has a line in docs/field-reports.md, and tests that carry its id."""
import re

IN_SCOPE = """A01 A03 A04 A07 A08 A10 A12 A14 A16 A19 A20 A21
    B01 B04 B05 B07 B10 B13 B15 B16 B18 B20 B21 B23 B25 B29 B30 B33 B35 B37 B40 B42 B44 B46
    C01 C03 C05 C07 C09 C11 C13 C14 C17 C18 C19 C21
    D15 D17 D19 D21 D23 D24
    E01 E03 E05 E07 E09
    F01 F03 F05 F07 F08 F10 F11 F16 F17 F19 F21 F24
    G01 G03 G06 G07 G09 G10 G12 G16 G19 G20 G21""".split()
LATER = "C24 D01 D03 D04 D08 D09 D12 D14".split()


def page(source):
    """The lines in scope as {id: files}, and the ids that are not."""
    text = (source / "docs/field-reports.md").read_text()
    listed, later = text.split("## Not in this release")
    rows = re.findall(r"^\| ([A-G]\d\d) \| .* \| (.*) \|$", listed, re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return {name: set(files.split(", ")) for name, files in rows}, re.findall(r"\b[A-G]\d\d\b", later)


def files_by_id(source):
    """{id: files}: functions of this folder that begin with it, and what says so in the others."""
    found = {}
    for path in (source / "tests").glob("*/test_*.*"):
        ours = path.parent.name == "field"
        for name in re.findall(r"^def test_([a-g]\d\d)_" if ours else r"[Ff]ield report ([A-G]\d\d)\b", path.read_text(), re.MULTILINE):
            found.setdefault(name.upper(), set()).add(path.name if ours else f"{path.parent.name}/{path.name}")
    return found


def test_the_page_lists_each_report_once(source):
    listed, later = page(source)
    assert sorted(listed) == IN_SCOPE and later == LATER


def test_each_report_has_its_tests_where_the_page_says(source):
    """Tests of other folders may say more ids than the page names them for."""
    listed, _ = page(source)
    found = files_by_id(source)
    assert found.keys() <= listed.keys()
    for name, files in listed.items():
        assert files and files <= found[name], name
        assert {file for file in found[name] if "/" not in file} <= files, name
