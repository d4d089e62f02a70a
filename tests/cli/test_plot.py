"""`stoker plan --plot` and the package's stoker.plot: the picture shows what the table says, whole or not at all."""
import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from PIL import Image

matplotlib = pytest.importorskip("matplotlib")
SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../python"))
np = pytest.importorskip("numpy")
plot = pytest.importorskip("stoker.plot")

PACKED = ["--layout", "packed", "--row-tokens", 1024, "--batch", 4, "--micro-batch", 1, "--ranks", 2]


@pytest.fixture(scope="module")
def config(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plot") / "sample"
    shutil.copytree(source / "examples/sample", folder, ignore=shutil.ignore_patterns("*.stk*", "*.stoker-*"))
    return folder / "stoker.yaml"


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("STK_PYTHON", sys.executable)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return monkeypatch


@pytest.fixture
def steps(stoker, config):
    """The table as CSV, and its rows as numbers."""
    text = stoker("plan", config, *PACKED, "--csv", "-").stdout
    return text, [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]


def lines_of(figure):
    """{(panel, line): (steps, values)} of a picture."""
    return {(axes.get_ylabel(), line.get_label()): (line.get_xdata(), line.get_ydata()) for axes in figure.axes for line in axes.lines}


def equal(a, b):
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)


# --- the picture's data ---

def test_lines_are_the_columns_of_the_table(steps):
    text, rows = steps
    lines = lines_of(plot.draw(plot.read_table(io.StringIO(text))))
    shown = {("fill", "fill"): "fill", ("imbalance", "as dealt"): "imbalance", ("imbalance", "without balance"): "imbalance_unbalanced",
             ("imbalance of vision", "as dealt"): "imbalance_vision",
             ("imbalance of vision", "without balance"): "imbalance_vision_unbalanced",
             ("supervised tokens", "of a step"): "supervised_tokens"}
    assert set(lines) == set(shown) and len(rows) > 3
    for line, column in shown.items():
        assert equal(lines[line][0], [row["step"] for row in rows])
        assert equal(lines[line][1], [row[column] for row in rows]), column


def test_csv_and_json_read_alike(stoker, config, steps):
    of_csv = plot.read_table(io.StringIO(steps[0]))
    of_json = plot.read_table(io.StringIO(stoker("plan", config, *PACKED, "--json", "--steps-table").stdout))
    assert all(equal(of_csv[name], of_json[name]) for name in plot.READ)


def table_of(count, **columns):
    table = {name: np.full(count, 1.0) for name in plot.READ}
    table["step"] = np.arange(float(count))
    return table | {name: np.asarray(values, float) for name, values in columns.items()}


def test_many_steps_become_mean_least_and_most_of_columns():
    count = 1_000_003
    fill = np.random.default_rng(5).random(count)
    figure = plot.draw(table_of(count, fill=fill))
    [axes] = [a for a in figure.axes if a.get_ylabel() == "fill"]
    [line], [band] = axes.lines, axes.collections
    starts = [i * count // plot.COLUMNS_MOST for i in range(plot.COLUMNS_MOST)] + [count]
    parts = [fill[a:b] for a, b in zip(starts, starts[1:])]
    assert np.allclose(line.get_ydata(), [p.mean() for p in parts]) and len(parts) == 800
    edge = band.get_paths()[0].vertices[:, 1]
    assert math.isclose(edge.min(), fill.min()) and math.isclose(edge.max(), fill.max())
    assert set(np.round([p.min() for p in parts] + [p.max() for p in parts], 9)) == set(np.round(edge, 9))


def test_columns_without_a_value_are_gaps():
    mean, least, most = plot.bin_columns(np.array([1.0, 3.0, math.nan, math.nan, math.nan, 5.0]), 3)
    for got, expected in (mean, [2, math.nan, 5]), (least, [1, math.nan, 5]), (most, [3, math.nan, 5]):
        assert equal(got, expected)


def test_panels_without_work_are_left_out():
    nothing = np.full(10, math.nan)
    figure = plot.draw(table_of(10, imbalance_vision=nothing, imbalance_vision_unbalanced=nothing))
    assert [axes.get_ylabel() for axes in figure.axes] == ["fill", "imbalance", "supervised tokens"]


HEAD = ",".join(plot.READ)


@pytest.mark.parametrize("text, words", [
    ("", "no column"), ("a,b\n1,2\n", "no column step"), (HEAD + "\n", "no steps"), (HEAD + "\n0,1,1,1,1,1\n", "not whole"),
    (HEAD + "\n0,1,x,1,1,1,1\n", "row 1"), (HEAD + "\n0,1,1,1,1,1,1\nend\n", "not whole"), ('{"columns": [], "steps_table": []}', "no column")])
def test_what_is_no_table_is_refused(text, words):
    with pytest.raises(plot.NoTable, match=words):
        plot.read_table(io.StringIO(text))


def test_a_table_that_was_cut_off_is_refused():
    with pytest.raises(plot.NoTable, match="not whole"):
        plot.read_table(io.StringIO(HEAD + "\n0,1,1,1,1,1,1\n"), end="end")
    assert plot.read_table(io.StringIO(HEAD + "\n0,1,1,1,1,1,\nend\n"), end="end")["step"] == [0]


# --- the command ---

def test_plan_draws_a_png_without_a_display(stoker, config, steps, environment, tmp_path):
    picture = tmp_path / "steps.png"
    done = stoker("plan", config, *PACKED, "--plot", picture)
    assert done.stdout == stoker("plan", config, *PACKED).stdout and "stoker.plot" not in done.stderr
    with Image.open(picture) as png:
        assert png.format == "PNG" and png.size == plot.SIZE_PX
        drawn = np.asarray(png.convert("RGB"))
    # The very picture that the table of --csv gives.
    plot.save(plot.draw(plot.read_table(io.StringIO(steps[0]))), str(tmp_path / "again.png"))
    with Image.open(tmp_path / "again.png") as png:
        assert np.array_equal(np.asarray(png.convert("RGB")), drawn)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.png", "steps.png"]


def test_svg_and_the_table_beside_it(stoker, config, steps, environment, tmp_path):
    stoker("plan", config, *PACKED, "--plot", tmp_path / "steps.svg", "--csv", tmp_path / "steps.csv")
    assert (tmp_path / "steps.csv").read_text() == steps[0]
    assert xml.etree.ElementTree.parse(tmp_path / "steps.svg").getroot().tag.endswith("svg")
    document = json.loads(stoker("plan", config, *PACKED, "--plot", tmp_path / "more.svg", "--json", "--steps-table").stdout)
    assert len(document["steps_table"]) == len(steps[1]) and (tmp_path / "more.svg").exists()


def test_the_module_draws_a_file(steps, environment, tmp_path):
    (tmp_path / "steps.csv").write_text(steps[0])
    environment.setenv("PYTHONPATH", SOURCE)
    run = [sys.executable, "-m", "stoker.plot", tmp_path / "steps.png", tmp_path / "steps.csv"]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "" and (tmp_path / "steps.png").exists()
    (tmp_path / "steps.csv").write_text("a,b\n")
    (tmp_path / "steps.png").unlink()
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 1 and "no column step" in done.stderr and not (tmp_path / "steps.png").exists()


# --- what is missing ---

def refused(stoker, config, tmp_path, *arguments, status=2, name="steps.png"):
    done = stoker("plan", config, *PACKED, "--plot", tmp_path / name, *arguments, status=status)
    assert done.stdout == "" and not (tmp_path / name).exists()
    return done.stderr


def test_no_python(stoker, config, environment, tmp_path):
    environment.setenv("STK_PYTHON", str(tmp_path / "no-python"))
    message = refused(stoker, config, tmp_path)
    assert "no-python cannot be started" in message and "STK_PYTHON" in message and "matplotlib" in message


def test_no_package(build, config, environment, tmp_path):
    """A program alone, away from its build folder."""
    lonely = tmp_path / "bin" / "stoker"
    lonely.parent.mkdir()
    shutil.copy(build / "cli" / "stoker", lonely)
    done = subprocess.run([lonely, "plan", config, "--plot", tmp_path / "steps.png"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(build / "src/engine")})
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "steps.png").exists()
    assert "python/ of the source" in done.stderr and "PYTHONPATH" in done.stderr
    # Where it is installed, the package lies in share/.
    shutil.copytree(os.path.join(SOURCE, "stoker"), tmp_path / "share/stoker/python/stoker")
    done = subprocess.run([lonely, "plan", config, "--plot", tmp_path / "steps.png"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(build / "src/engine")})
    assert done.returncode == 0, done.stderr


def test_no_matplotlib(stoker, config, environment, tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'matplotlib'\")")
    environment.setenv("PYTHONPATH", str(tmp_path))
    message = refused(stoker, config, tmp_path)
    assert f"{sys.executable} -m pip install matplotlib" in message and len(message.splitlines()) == 1


def test_no_folder(stoker, config, environment, tmp_path):
    assert "nowhere: no folder" in refused(stoker, config, tmp_path, name="nowhere/steps.png")


@pytest.mark.parametrize("arguments, words", [
    (["--plot", "steps.pdf"], "*.png or *.svg"), (["--plot", "a.png", "--step", 1], "leave --step out"),
    (["--plot", "a.png", "--index", "stream"], "index: stream")])
def test_what_cannot_be_drawn_is_a_usage_error(stoker, config, environment, tmp_path, arguments, words):
    assert words in stoker("plan", config, *arguments, status=2, cwd=tmp_path).stderr and not list(tmp_path.iterdir())


def test_a_plan_that_fails_draws_nothing(stoker, config, environment, tmp_path):
    message = refused(stoker, config, tmp_path, "--set", "data.sample.where=tokens > 1000000")
    assert "where" in message and "stoker.plot" not in message


def test_a_drawing_process_that_dies_is_a_failure(stoker, config, environment, tmp_path):
    """It says that it is ready, and ends: the table has nowhere to go."""
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho ready\nexit 7\n")
    fake.chmod(0o755)
    environment.setenv("STK_PYTHON", str(fake))
    assert "ended early" in stoker("plan", config, *PACKED, "--plot", tmp_path / "steps.png", status=1).stderr
    assert not (tmp_path / "steps.png").exists()
