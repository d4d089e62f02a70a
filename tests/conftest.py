"""What the Python tests share: where things are, and when a skip is a failure.

STK_BUILD names the build folder (default: build/); with STK_PACKAGE=installed the package `stoker` is that of the
interpreter.  With STK_REQUIRE=all, as CI sets it, a skipped test fails.  tests/gpu is left out unless STK_GPU=1 asks for it
(`make test-gpu`).
"""
import contextlib
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parent.parent

# The package `stoker` is that of the build folder, for all tests and for what they start: a test that would bring the one of the source tree,
# which has no extension, would bring it for all.
PACKAGE = pathlib.Path(os.environ.get("STK_BUILD", SOURCE / "build")).resolve() / "python"
if os.environ.get("STK_PACKAGE") != "installed":
    sys.path.insert(0, str(PACKAGE))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH")]))

collect_ignore = [] if os.environ.get("STK_GPU") == "1" else ["gpu"]


@pytest.fixture(scope="session")
def source():
    """The root of the source tree."""
    return SOURCE


@pytest.fixture(scope="session")
def build():
    """The build folder."""
    folder = pathlib.Path(os.environ.get("STK_BUILD", SOURCE / "build")).resolve()
    assert (folder / "build.ninja").exists(), f"{folder} is no build folder: run `make build`"
    return folder


@pytest.fixture(scope="session")
def config(source):
    """The configuration of the sample set."""
    return source / "examples/sample/stoker.yaml"


@pytest.fixture(scope="session")
def copy_sample(source):
    """Copy the sample set into a folder, without index files: ``copy_sample(folder)`` gives the copy."""
    def copy(folder):
        return shutil.copytree(source / "examples/sample", folder / "sample", ignore=shutil.ignore_patterns("*.stk*", "*.stoker-*"))

    return copy


@pytest.fixture(scope="session")
def index_dir(tmp_path_factory):
    """Where the index of the sample set is kept while tests run."""
    return tmp_path_factory.mktemp("index")


@pytest.fixture(scope="session")
def stoker(build):
    """Run the command line: ``stoker("index", path, status=0)`` gives the completed process, text captured."""
    program = build / "cli" / "stoker"

    def run(*arguments, status=0, **more):
        done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=300, **more)
        if status is not None:
            assert done.returncode == status, f"exit status {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def interrupt(build):
    """Run the command line until its trainers take steps, then interrupt it: exit status, output, what it said, and seconds until its end."""
    def run(*arguments):
        ours, theirs = pty.openpty()  # progress is shown on a terminal alone
        with subprocess.Popen([build / "cli" / "stoker", *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
            os.close(theirs)
            said, asked = "", None
            with contextlib.suppress(OSError):  # the terminal of nobody
                while more := os.read(ours, 4096).decode(errors="replace"):
                    said += more
                    if asked is None and "step " in said:
                        process.send_signal(signal.SIGINT)
                        asked = time.monotonic()
            os.close(ours)
            out = process.stdout.read()
            process.wait(60)
        return process.returncode, out, said, time.monotonic() - asked
    return run


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("STK_REQUIRE") == "all":
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"{reason}: a skip is a failure here (STK_REQUIRE=all)"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """A file that skips as a whole (pytest.importorskip) is a skip too."""
    outcome = yield
    report = outcome.get_result()
    if report.outcome == "skipped" and os.environ.get("STK_REQUIRE") == "all":
        report.outcome = "failed"
        report.longrepr = f"{report.longrepr}: a skip is a failure here (STK_REQUIRE=all)"
