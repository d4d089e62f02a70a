"""The text part of the suite: templates and dialects.

Templates: the conversations of tests/text/conversations.py under each published template, rendered text, ids, trained tokens
and places of media, beside transformers 5.24.0 (tests/text/reference.py) and, as far as it goes, 4.57.6.
Dialects: the records of tests/dialects/golden.jsonl through Stoker's command line: ids, labels and grids of the batch.

    PYTHON text.py FOLDER    in the Python of 4.57.6: its ids of FOLDER/cases.jsonl, into FOLDER/ids.jsonl
"""
import importlib.util
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = [{"control_tokens": rule} for rule in ("plain", "sanitize", "reference")]
OLD = ("qwen3-vl", "qwen2.5-vl")  # what 4.57.6 has a tokenizer for


def model_of(name, folder):
    """The checkpoint folder of a published model, made once."""
    if not (folder / name / "tokenizer.json").exists():
        subprocess.run([sys.executable, ROOT / "tools/make-reference-model", name, folder / name], check=True, capture_output=True)
    return folder / name


def conversations():
    loaded = []
    for name in ("conversations", "reference"):  # by their paths: this folder has a reference.py too
        spec = importlib.util.spec_from_file_location(f"text_{name}", ROOT / "tests" / "text" / f"{name}.py")
        loaded.append(importlib.util.module_from_spec(spec))
        spec.loader.exec_module(loaded[-1])
    return loaded[0].CASES, loaded[1]


def probe_says(probe, model, template, cases):
    lines = "".join(json.dumps({**rules, "record": record}) + "\n" for record, rules in cases)
    done = subprocess.run([probe, model, template], input=lines.encode(), capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def ids_of_4(python, folder, model, template, records):
    """What transformers 4.57.6 makes of records: ids, or None where it refuses."""
    lines = [{"messages": [{k: v for k, v in m.items() if k != "train"} for m in r["messages"]], "tools": r.get("tools")} for r in records]
    (folder / "cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "case.json").write_text(json.dumps({"model": str(model), "template": template}))
    subprocess.run([python, __file__, folder], check=True, capture_output=True)
    return [json.loads(line) for line in (folder / "ids.jsonl").read_text().splitlines()]


def templates(probe, folder, python_4):
    """Of each: template, release, runs, equal, refused by both, names of those that differ."""
    cases, text_reference = conversations()
    folder.mkdir(parents=True, exist_ok=True)
    for name in text_reference.TEMPLATES:
        model = model_of(name.removesuffix("-training"), folder)
        ref = text_reference.Reference(model, name)
        runs = [(case, rules) for case in cases for rules in RULES]
        said = probe_says(probe, model, name, [(case["record"], rules) for case, rules in runs])
        equal, refused, odd = 0, 0, []
        for (case, rules), got in zip(runs, said, strict=True):
            try:
                wanted = ref.run(case["record"], rules)
                same = all(got.get(key) == wanted[key] for key in ("rendered", "ids", "trained", "media_at"))
                equal += same
            except text_reference.Refused as e:
                same = got.get("reason") == e.args[0]
                refused += same
            if not same:
                odd.append(f"{case['name']} ({rules['control_tokens']})")
        yield name, "transformers 5.24.0", len(runs), equal, refused, odd
        if name in OLD:
            own = [(case, got) for (case, rules), got in zip(runs, said) if rules["control_tokens"] == "reference" and "ids" in got]
            theirs = ids_of_4(python_4, folder, model, ref.template, [case["record"] for case, _ in own])
            odd = [case["name"] for (case, got), ids in zip(own, theirs, strict=True) if ids != got["ids"]]
            yield name, "transformers 4.57.6", len(own), len(own) - len(odd), 0, odd


# --- dialects ---


def roots_of(lines):
    """Media folders in which no address has two grids: [({address: grid}, lines)]"""
    roots = []
    for line in lines:
        need = {}
        if any(not address.startswith("/m/") or need.setdefault(address, grid) != grid for address, grid in zip(line["media"], line["grids"])):
            continue  # bytes inside the record, which are no picture: tests/dialects looks at those
        for held, own in roots:
            if all(held.get(address, grid) == grid for address, grid in need.items()):
                held.update(need)
                own.append(line)
                break
        else:
            roots.append((need, [line]))
    return roots


def dialects(program, folder):
    """{dialect: (records, equal, names of those that differ)}"""
    import numpy
    import stoker
    from PIL import Image
    lines = [json.loads(line) for line in (ROOT / "tests/dialects/golden.jsonl").read_text(encoding="utf-8").splitlines()]
    out = {}
    for number, (media, own) in enumerate(roots_of(lines)):
        root = folder / f"root-{number}"
        for address, (_, h, w) in media.items():
            path = root / "m" / address[3:]
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (w * 16, h * 16), (40, 90, 120)).save(path, "PNG")
        for form in ("llava", "openai", "ms-swift", "sharegpt"):
            sets = {}
            for line in own:
                for item in line["records"]:
                    if item["format"] == form:
                        sets.setdefault(json.dumps(item.get("columns")), []).append((line, item["record"]))
            for k, (columns, records) in enumerate(sets.items()):
                own_folder = root / f"{form}-{k}"
                own_folder.mkdir(exist_ok=True)
                (own_folder / "records.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for _, r in records), encoding="utf-8")
                data = {"name": "d", "path": "records.jsonl", "format": form, "media_root": str(root / "m")}
                if columns != "null":
                    data["columns"] = json.loads(columns)
                configuration = {"model": str(stoker.SAMPLE_MODEL), "template": "qwen3-vl", "data": [data], "batch": len(records),
                                 "shuffle": False, "errors": {"unusable": 1}, "min_pixels": 1024}
                (own_folder / "stoker.yaml").write_text(json.dumps(configuration))
                stoker.run(program, "index", own_folder / "stoker.yaml")
                stoker.run(program, "replay", own_folder / "stoker.yaml", "--step", 0, "--dump", own_folder / "dump")
                dump = next((own_folder / "dump").iterdir())
                said = json.loads((dump / "batch.json").read_text())["samples"]
                fields = {name: numpy.load(dump / f"{name}.npy") for name in ("input_ids", "labels")}
                grids = numpy.load(dump / "image_grid_thw.npy").tolist() if (dump / "image_grid_thw.npy").exists() else []
                total, equal, odd = out.get(form, (0, 0, []))
                by_line = {s["line"]: s for s in said if s["status"] == "made"}
                at = 0
                for i, (line, _) in enumerate(records):
                    sample = by_line.get(i + 1)
                    images = len(line["media"])
                    same = sample is not None and grids[at : at + images] == line["grids"] and row_is(fields, sample, line)
                    at += images if sample else 0
                    total, equal = total + 1, equal + same
                    if not same:
                        odd.append(line["name"])
                out[form] = total, equal, odd
    return out


def row_is(fields, sample, line):
    """The row's ids and labels are the golden's."""
    row, n = sample["row"], sample["tokens"]
    ids = fields["input_ids"][row, :n].tolist()
    trained = {i for begin, end in line["labels_at"] for i in range(begin, end)}
    return ids == line["input_ids"] and fields["labels"][row, :n].tolist() == [v if i in trained else -100 for i, v in enumerate(ids)]


def main():
    """In the Python of 4.57.6."""
    import transformers
    assert transformers.__version__ == "4.57.6", transformers.__version__
    folder = pathlib.Path(sys.argv[1])
    case = json.loads((folder / "case.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(case["model"])
    with open(folder / "cases.jsonl", encoding="utf-8") as lines, open(folder / "ids.jsonl", "w") as out:
        for record in map(json.loads, lines):
            try:
                ids = tokenizer.apply_chat_template(record["messages"], tools=record["tools"], chat_template=case["template"], tokenize=True)
            except Exception:
                ids = None
            out.write(json.dumps(ids) + "\n")


if __name__ == "__main__":
    main()
