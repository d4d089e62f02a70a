#!/usr/bin/env python3
"""The conformance suite: Stoker beside the pinned releases of the reference software (`make conformance`).

    tools/conformance/run.py --stoker build/cli/stoker --probe build/tests/text/text_probe [--write] [--kept]

Runs each release of reference.py in its own Python (tools/install-deps conformance), Stoker through its command line, and
compares pixel_values and patches, picture by picture and switch by switch; then the text (text.py).  Results lie in
build/conformance.  Exit status 1 where something differs that tests/conformance/rules.txt does not foresee, or where a
release no longer gives the goldens.

    --write   the goldens (tests/conformance/goldens.txt) and the tables of docs/conformance.md
    --kept    take what build/conformance has of the reference software, and run only Stoker
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reference  # noqa: E402
import tables  # noqa: E402

ROOT = reference.ROOT
GOLDENS = ROOT / "tests" / "conformance" / "goldens.txt"
DOCUMENT = ROOT / "docs" / "conformance.md"


def python_of(environment):
    return ROOT / f".venv-conformance-{environment}" / "bin" / "python"


def run_reference(release, folder):
    environment, pillow, _, _ = reference.RELEASES[release]
    variables = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    own = ROOT / f".venv-conformance-pillow-{pillow}"
    if environment == "hf5" and pillow != "13.0.0":  # Pillow of another release, everything else of hf5
        variables["PYTHONPATH"] = str(next(own.glob("lib/python3*/site-packages")))
    with open(folder / f"{release}.log", "w") as log:
        done = subprocess.run([python_of(environment), pathlib.Path(__file__).parent / "reference.py", release, folder], env=variables,
                              stdout=log, stderr=log)
    assert done.returncode == 0, f"{release}: see {folder / release}.log"


def results_of(release, folder):
    """{(picture, way): result}"""
    with open(folder / f"{release}.jsonl", encoding="utf-8") as lines:
        return {(r["picture"], f"{r['orientation']}/{r['alpha']}"): r for r in map(json.loads, lines)}


def golden_lines(results):
    """For each picture a line `FILE MIN MAX PATCH`, then what the first release of each profile gives: `PROFILES WAYS`, and
    "refused" or `WIDTH HEIGHT UINT8 FLOAT32`; * stands for the four switches."""
    yield "# Made by tools/conformance/run.py --write.  Releases: " + " ".join(reference.RELEASES)
    for picture, _, _, least, most, patch, _ in reference.pictures():
        yield f"{picture} {least} {most} {patch}"
        groups = {}
        for profile, release in reference.FIRST.items():
            own = {}
            for orientation, alpha in reference.WAYS[profile]:
                r = results[release][picture, f"{orientation}/{alpha}"]
                says = "refused" if "refused" in r else f"{r['grid'][1] * patch} {r['grid'][0] * patch} {r['uint8']} {r['float32']}"
                kind = "auto" if orientation == "auto" else "set"
                own.setdefault((kind, says), []).append(f"{orientation}/{alpha}")
            for (_, says), ways in own.items():
                groups.setdefault((",".join(ways) if len(ways) < 4 else "*", says), []).append(profile)
        for (ways, says), profiles in groups.items():
            yield f" {','.join(profiles)} {ways} {says}"


def read_rules():
    """[(picture, profiles, ways, outcome, section, words)] of tests/conformance/rules.txt."""
    out = []
    for line in (ROOT / "tests/conformance/rules.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            out.append(tuple(line.split(None, 5)))
    return out


class Comparison:
    """Stoker's result of one picture and way beside a release's."""

    def __init__(self, release, profile, row, way, theirs, ours, folder):
        import numpy
        import stoker
        self.release, self.profile, self.way = release, profile, way
        self.picture, self.format, self.kind, _, _, self.patch, _ = row
        self.share = self.most = 0
        if "refused" in theirs or ours is None:
            self.outcome = "refused" if "refused" in theirs and ours is None else "reads" if ours else "refuses"
            self.words = theirs.get("refused", "")
            return
        grid, values = ours
        self.words = ""
        if grid == theirs["grid"] and stoker.digest(values) == theirs["float32"]:
            self.outcome = "equal"
            return
        self.outcome = "differs"
        mine = stoker.bytes_of(values, self.patch)
        other = numpy.load(folder / "patches" / f"{theirs['uint8']}.npy")
        if grid != theirs["grid"] or other.shape != mine.shape:  # torchvision stacks the frames of an animation
            self.words = "another size"
            return
        apart = abs(mine.astype(float) - other)
        self.share, self.most = float((apart > 0).mean()), float(apart.max())


def compare(program, folder, results):
    import stoker
    rows = list(reference.pictures())
    stoker.prepare(program, folder / "stoker")
    by_profile = {}
    for release in results:
        profile = reference.RELEASES[release][3]
        by_profile.setdefault("hf" if profile == "strings" else profile, []).append(release)
    for profile, releases in by_profile.items():
        for orientation, alpha in reference.WAYS[profile]:
            way = f"{orientation}/{alpha}"
            ours = stoker.made_by(program, folder / "stoker", profile, orientation, alpha)
            for release in releases:
                for row in rows:
                    theirs = results[release].get((row[0], way))
                    if theirs:
                        yield Comparison(release, profile, row, way, theirs, ours.get(row[0]), folder)


def write_document(parts):
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, block in parts.items():
        pattern = re.compile(rf"(<!-- {name}: made by tools/conformance/run.py -->\n).*?(<!-- end of {name} -->)", re.S)
        assert len(pattern.findall(text)) == 1, name
        text = pattern.sub(lambda m: m.group(1) + "\n" + block.rstrip() + "\n\n" + m.group(2), text)
    DOCUMENT.write_text(text, encoding="utf-8")


def is_foreseen(rules, c):
    """The outcome is the reference's, or that of a rule.  Given paths, 5.24.0 has no profile: it is shown, not judged."""
    if c.release == tables.STRINGS or c.outcome in ("equal", "refused") and c.release not in reference.FIRST.values():
        return True
    wanted = tables.foreseen(rules, c)[0]
    return c.outcome in (wanted, "refused") or wanted == "varies" and c.outcome in ("equal", "differs")


def check_goldens(results, write):
    goldens = "\n".join(golden_lines(results)) + "\n"
    if write:
        GOLDENS.write_text(goldens, encoding="utf-8")
    elif GOLDENS.read_text(encoding="utf-8") != goldens:
        print("the releases do not give tests/conformance/goldens.txt: look at the difference, then --write")
        return 1
    return 0


def compare_pictures(options, results):
    """The tables of pictures and distances; how many outcomes are not foreseen."""
    wrong, rules = 0, read_rules()
    comparisons = list(compare(options.stoker.resolve(), options.folder, results))
    for c in comparisons:
        if not is_foreseen(rules, c):
            wrong += 1
            print(f"{c.picture} {c.profile} {c.way} beside {c.release}: {c.outcome} {c.words}"
                  + (f" ({c.share:.2%} of the bytes, by up to {c.most:.0f})" if c.outcome == "differs" else ""))
    print(f"{len(comparisons)} results of pictures compared, {wrong} not foreseen")
    return {"pictures": tables.pictures(comparisons, rules), "distances": tables.distances(results, options.folder)}, wrong


def compare_texts(options):
    import text
    folder = options.folder / "text"
    shutil.rmtree(folder, ignore_errors=True)
    dialects = text.dialects(options.stoker.resolve(), folder / "dialects")
    templates = list(text.templates(options.probe.resolve(), folder, python_of("hf4")))
    odd = [name for _, _, names in dialects.values() for name in names] + [name for *_, names in templates for name in names]
    for name in odd:
        print(f"text: {name} differs")
    return {"texts": tables.texts(dialects, templates)}, len(odd)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stoker", required=True, type=pathlib.Path)
    parser.add_argument("--probe", required=True, type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "conformance")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for release in reference.RELEASES:
        if not (options.kept and (options.folder / f"{release}.jsonl").exists()):
            print(f"running {release}", flush=True)
            run_reference(release, options.folder)
        results[release] = results_of(release, options.folder)
    wrong = check_goldens(results, options.write)
    print("running Stoker", flush=True)
    parts = {}
    for made, odd in (compare_pictures(options, results), compare_texts(options)):
        parts.update(made)
        wrong += odd
    for name, block in parts.items():
        (options.folder / f"{name}.md").write_text(block, encoding="utf-8")
    if options.write:
        write_document(parts)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
