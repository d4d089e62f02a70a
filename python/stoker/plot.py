"""A picture of a plan: how full its steps are, how even the work of the ranks is, how many tokens are trained.

    stoker plan CONFIG --plot steps.png             does all of it
    python3 -m stoker.plot steps.png steps.csv      draws what `stoker plan --csv steps.csv` wrote, or a document of --json --steps-table

A picture is as readable of ten steps as of a million: of more steps than it has columns, it shows mean, least and most of each column's.
Needs matplotlib, and no display.
"""
from __future__ import annotations

import argparse
import array
import json
import os
import sys
from typing import Any, TextIO

try:
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
except ImportError as missing:
    if __name__ != "__main__":
        raise
    print(f"stoker.plot: {missing}: run `{sys.executable} -m pip install matplotlib`, or name another interpreter with STK_PYTHON",
          file=sys.stderr)
    sys.exit(3)  # told in full: `stoker plan` adds nothing

SIZE_PX = 1200, 900
DPI = 100
COLUMNS_MOST = 800
MARKED_MOST = 60  # so few steps that a line alone would show little
READ = ("step", "supervised_tokens", "fill", "imbalance", "imbalance_vision", "imbalance_unbalanced", "imbalance_vision_unbalanced")

Table = dict[str, np.ndarray]


class NoTable(ValueError):
    """What was read is no table of `stoker plan`, or not all of one."""


# --- reading ---

def read_table(file: TextIO, end: str | None = None) -> Table:
    """The columns READ of a table of `stoker plan`, CSV or JSON; nan where there is no such work.

    end: the line that must stand behind the last row; a table without it was cut off."""
    head = file.readline()
    if head.lstrip().startswith("{"):
        document = json.loads(head + file.read())
        names, rows = document.get("columns", []), document.get("steps_table", [])
    else:
        names, rows = head.rstrip("\n").split(","), (line.rstrip("\n").split(",") for line in file)
    lacking = [name for name in READ if name not in names]
    if lacking:
        raise NoTable(f"no table of `stoker plan`: it has no column {lacking[0]}")
    places = [names.index(name) for name in READ]
    values = [array.array("d") for _ in READ]
    last = None
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            last = row
            break
        try:
            for to, place in zip(values, places):
                to.append(float("nan") if row[place] in ("", None) else float(row[place]))
        except ValueError:
            raise NoTable(f"row {number} has a field that is no number") from None
    if last != (None if end is None else [end]):
        raise NoTable("the table is not whole: make it again")
    if not values[0]:
        raise NoTable("the plan has no steps")
    return {name: np.frombuffer(column) for name, column in zip(READ, values)}


# --- drawing ---

def bin_columns(values: np.ndarray, most: int = COLUMNS_MOST) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, least and most of `most` stretches of nearly equal length; nan where a stretch has no value."""
    starts = np.arange(most) * len(values) // most
    known = ~np.isnan(values)
    counts = np.add.reduceat(known.astype(float), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    mean = np.divide(sums, counts, out=np.full(most, np.nan), where=counts > 0)
    return mean, np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)


def put_line(axes: Any, steps: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    if len(values) <= COLUMNS_MOST:
        axes.plot(steps, values, color=colour, label=label, linewidth=1.2, marker="." if len(values) <= MARKED_MOST else None)
        return
    at, _, _ = bin_columns(steps)
    mean, least, most = bin_columns(values)
    axes.fill_between(at, least, most, color=colour, alpha=0.25, linewidth=0, label=f"{label}: least to most")
    axes.plot(at, mean, color=colour, label=f"{label}: mean", linewidth=1.2)


def draw(table: Table) -> Figure:
    """The picture.  Its panels: fill, imbalance of all work and of the vision tower where there is such work, supervised tokens."""
    steps = table["step"]
    panels = [("fill", [("fill", "C0", "fill")])]
    for title, suffix in ("imbalance", ""), ("imbalance of vision", "_vision"):
        lines = [(f"imbalance{suffix}_unbalanced", "C1", "without balance"), (f"imbalance{suffix}", "C0", "as dealt")]
        if not np.isnan(table[lines[1][0]]).all():
            panels.append((title, lines))
    panels.append(("supervised tokens", [("supervised_tokens", "C2", "of a step")]))

    figure = Figure(figsize=(SIZE_PX[0] / DPI, SIZE_PX[1] / DPI), dpi=DPI, layout="constrained")
    all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, lines) in zip(all_axes, panels):
        for name, colour, label in lines:
            put_line(axes, steps, table[name], colour, label)
        axes.set_ylabel(title)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, frameon=False, fontsize="small", ncols=4)  # above: covers nothing
    all_axes[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    plain = FuncFormatter(lambda value, _: f"{value:,.0f}")
    all_axes[-1].yaxis.set_major_formatter(plain)
    all_axes[-1].xaxis.set_major_formatter(plain)
    all_axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    all_axes[-1].set_xlabel("step")
    figure.suptitle(f"{len(steps):,} steps")
    return figure


def save(figure: Figure, path: str) -> None:
    """Write PNG or SVG, by the name: all of it or nothing."""
    temporary = f"{path}.tmp-{os.getpid()}"
    kind = path.lower().rsplit(".", 1)[-1]
    try:
        figure.savefig(temporary, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


# --- the command ---

def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m stoker.plot", description="Draw a table of `stoker plan`.")
    parser.add_argument("picture", help="file to write, *.png or *.svg")
    parser.add_argument("table", nargs="?", help="what `stoker plan --csv` or `--json --steps-table` wrote; default: the input")
    parser.add_argument("--fed", action="store_true", help="by `stoker plan`: say `ready` first; the line `end` stands behind the last row")
    options = parser.parse_args(arguments)
    if not options.picture.lower().endswith((".png", ".svg")):
        parser.error(f"{options.picture}: a picture is *.png or *.svg")
    folder = os.path.dirname(options.picture) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        print(f"stoker.plot: {folder}: no folder that can be written", file=sys.stderr)
        return 3
    if options.fed:
        print("ready", flush=True)
    try:
        with open(options.table, encoding="utf-8") if options.table else sys.stdin as file:
            table = read_table(file, end="end" if options.fed else None)
        save(draw(table), options.picture)
    except (OSError, ValueError) as fault:
        print(f"stoker.plot: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
