"""The checks of the sources find what they are there to find."""
import subprocess
import sys

import pytest


def check_layers(source, root):
    return subprocess.run([sys.executable, source / "tools/check-layers", root], capture_output=True, text=True)


def plant(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_tree_that_keeps_the_layers_passes(source, tmp_path):
    plant(tmp_path, "src/base/memory.h", "#include <stoker/status.h>\n")
    plant(tmp_path, "src/image/jpeg.c", '#include "base/memory.h"\n#include "image/jpeg.h"\n#include <stdio.h>\n')
    plant(tmp_path, "src/engine/make.c", '#include "image/jpeg.h"\n')
    plant(tmp_path, "cli/main.c", "#include <stoker/stoker.h>\n")
    done = check_layers(source, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path, include", [
    ("src/base/memory.c", "schema/facts.h"),
    ("src/image/jpeg.c", "text/text.h"),
    ("src/manifest/build.c", "image/image.h"),
    ("src/plan/planner.c", "engine/run.h"),
    ("cli/main.c", "base/memory.h"),
    ("include/stoker/batch.h", "schema/facts.h"),
    ("src/novel/thing.c", "base/memory.h"),
])
def test_an_include_across_the_layers_is_found(source, tmp_path, path, include):
    plant(tmp_path, path, f'#include "{include}"\n')
    done = check_layers(source, tmp_path)
    assert done.returncode == 1 and path.split("/")[1] in done.stderr


def test_two_files_of_one_name_are_found(source, tmp_path):
    plant(tmp_path, "src/text/table.c", "")
    plant(tmp_path, "src/image/table.c", "")
    done = check_layers(source, tmp_path)
    assert done.returncode == 1 and "unique" in done.stderr


def test_the_headers_declare_what_the_symbol_check_reads(source):
    """A form of declaration that the check cannot read would leave a function unchecked."""
    namespace = {"__name__": "check", "__file__": str(source / "tools/check-symbols")}
    exec((source / "tools/check-symbols").read_text(), namespace)
    marks = sum(line.count("STK_API") for header in (source / "include/stoker").glob("*.h")
                for line in header.read_text().splitlines() if "#define" not in line and "* " != line.strip()[:2])
    assert len(namespace["declared"](source)) == marks > 0
