"""Every field report in scope has a line in docs/field-reports.md, and a test that carries its id."""
import re

IN_SCOPE = """A01 A03 A04 A07 A08 A10 A12 A14 A16 A19 A20 A21
    B01 B04 B05 B07 B10 B13 B15 B16 B18 B20 B21 B23 B25 B29 B30 B33 B35 B37 B40 B42 B44 B46
    C01 C03 C05 C07 C09 C11 C13 C14 C17 C18 C19 C21
    D15 D17 D19 D21 D23 D24
    F01 F05 F08 F10 F11 F16 F17 F19 F21 F24
    G03 G06 G09 G12 G16 G19 G21""".split()


def page(source):
    """The lines in scope as (id, file), and the ids that are not."""
    text = (source / "docs/field-reports.md").read_text()
    listed, later = text.split("## Not in this release")
    return re.findall(r"^\| ([A-G]\d\d) \| .* \| (test_\w+\.py) \|$", listed, re.MULTILINE), re.findall(r"\b[A-G]\d\d\b", later)


def functions(source):
    """(id, file) of each test function."""
    return {(name.upper(), path.name) for path in (source / "tests/field").glob("test_*.py")
            for name in re.findall(r"^def test_([a-g]\d\d)_", path.read_text(), re.MULTILINE)}


def test_the_page_lists_each_report_once(source):
    listed, later = page(source)
    assert sorted(name for name, _ in listed) == sorted(IN_SCOPE)
    assert later and len(set(later)) == len(later) and not set(later) & set(IN_SCOPE)


def test_each_report_has_its_test_where_the_page_says(source):
    listed, _ = page(source)
    assert set(listed) == functions(source)
