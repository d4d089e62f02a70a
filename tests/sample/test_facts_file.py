"""`facts` of a data set: sizes in a file beside the manifest are as good as sizes in the records, and as those of the headers."""
import gzip
import json
import shutil

import pytest
from PIL import Image

COUNT = 12
SMALL = ("--max_tokens", 2048, "--limits.media_pixels", 4000000, "--limits.media_bytes", "8MiB")
MODES = [("--balance", "none"), ("--layout", "packed", "--row-tokens", "1024", "--micro-batch", "1"), ("--index", "stream"),
         ("--index", "stream", "--layout", "flat")]


def draw(folder):
    """Pictures of many shapes; some turned by EXIF, some with alpha, some progressive. Their upright sizes by name."""
    sizes = {}
    for i in range(COUNT):
        size = (60 + 37 * i % 200, 50 + 91 * i % 170)
        image = Image.linear_gradient("L").resize(size).convert("RGBA" if i % 4 == 1 else "RGB")
        exif = Image.Exif()
        exif[0x0112] = 6 if i % 3 == 0 else 1
        name = f"{i}.png" if i % 4 == 1 else f"{i}.jpg"
        image.save(folder / name, exif=exif, **({} if i % 4 == 1 else {"progressive": i % 2 == 0}))
        sizes[name] = size[::-1] if i % 3 == 0 else size
    return sizes


def write_records(path, image_of):
    """A picture is used by two records; the last record has none."""
    records = [{"id": f"r{i}", "images": [image_of(i % COUNT)],
                "messages": [{"role": "user", "content": "<image>What is this?"}, {"role": "assistant", "content": f"Number {i}."}]}
               for i in range(2 * COUNT)]
    records.append({"id": "words", "messages": [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Nothing."}]})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


class Sets:
    """Three sets of the same pictures: nothing stated, stated in the records, stated in a facts file."""

    def __init__(self, source, folder):
        self.folder = folder
        shutil.copytree(source / "examples/sample/model", folder / "model")
        (folder / "pictures").mkdir()
        self.sizes = draw(folder / "pictures")
        self.names = sorted(self.sizes, key=lambda name: int(name[:-4]))
        rest = (source / "examples/sample/stoker.yaml").read_text().partition("batch:")[2]
        for kind in "header", "record", "facts":
            (folder / kind).mkdir()
            stated = kind == "record"
            write_records(folder / kind / "train.jsonl", lambda i: self.line(self.names[i]) if stated else self.names[i])
            facts = "    facts: ../facts.jsonl\n" if kind == "facts" else ""
            (folder / kind / "stoker.yaml").write_text(f"model: ../model\ndata:\n  - name: set\n    path: train.jsonl\n    media_root: ../pictures\n"
                                                       f"{facts}batch:{rest}")
        self.write_facts()

    def line(self, name, **changes):
        return {"path": name, "width": self.sizes[name][0], "height": self.sizes[name][1]} | changes

    def write_facts(self, changes={}, more=()):
        lines = [self.line(name, size=1, **changes.get(name, {})) for name in self.names]
        (self.folder / "facts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))

    def __getitem__(self, kind):
        return self.folder / kind / "stoker.yaml"

    def content_digest(self, kind):
        """Of the facts of the media part: in its seal (docs/index-format.md)."""
        [part] = (self.folder / kind).glob("*.stoker-media-*")
        return part.read_bytes()[-32:-16]


@pytest.fixture
def sets(source, tmp_path):
    return Sets(source, tmp_path)


def run(stoker, config, *options, status=0):
    return json.loads(stoker("run", config, "--json", "--digest", *options, *SMALL, status=status).stdout)


def index(stoker, config, *options):
    return json.loads(stoker("index", config, "--json", *options, *SMALL).stdout)["sets"][0]


@pytest.mark.parametrize("options", MODES, ids=" ".join)
def test_the_stream_is_the_same_whoever_states_the_sizes(stoker, sets, options):
    runs = {kind: run(stoker, sets[kind], *options) for kind in ("header", "record", "facts")}
    assert len({r["digest"] for r in runs.values()}) == 1 and len({r["samples"] for r in runs.values()}) == 1
    assert all(r["failures"]["masked"] == 0 for r in runs.values())
    if "stream" in options:
        assert runs["header"]["facts_read"]["headers"] == runs["header"]["images"] > 0
        assert runs["record"]["facts_read"]["headers"] == runs["facts"]["facts_read"]["headers"] == 0


def test_facts_and_their_digest_are_those_of_sizes_in_records(stoker, sets):
    reports = {kind: index(stoker, sets[kind]) for kind in ("header", "record", "facts")}
    assert [reports[kind]["media_headers_read"] for kind in ("header", "record", "facts")] == [COUNT, 0, 0]
    assert reports["record"]["findings"]["size_stated"]["count"] == reports["facts"]["findings"]["size_stated"]["count"] == 2 * COUNT
    assert sets.content_digest("record") == sets.content_digest("facts") != sets.content_digest("header")
    for name in "usable", "images", "visual_tokens", "length_histogram":
        assert reports["header"][name] == reports["record"][name] == reports["facts"][name], name


def test_stored_sizes_with_an_orientation_are_turned(stoker, sets):
    index(stoker, sets["facts"])
    before = sets.content_digest("facts")
    turned = {name: {"width": size[1], "height": size[0], "orientation": 6} for name, size in sets.sizes.items()}
    sets.write_facts(turned)
    assert index(stoker, sets["facts"])["media_headers_read"] == 0 and sets.content_digest("facts") == before


def test_a_compressed_file_is_the_same_file(stoker, sets):
    plain = run(stoker, sets["facts"])
    text = (sets.folder / "facts.jsonl").read_bytes()
    (sets.folder / "facts.jsonl.gz").write_bytes(gzip.compress(text[:300]) + gzip.compress(text[300:]))
    (sets.folder / "facts.jsonl").unlink()
    packed = ["--set", f"data.set.facts={sets.folder}/facts.jsonl.gz"]
    assert run(stoker, sets["facts"], *packed)["digest"] == plain["digest"]
    assert run(stoker, sets["facts"], *packed, "--index", "require")["digest"] == plain["digest"]


def test_a_changed_file_is_noticed(stoker, sets):
    first = run(stoker, sets["facts"])
    name = sets.names[3]
    sets.write_facts({name: {"width": sets.sizes[name][0] + 400}})
    refused = stoker("run", sets["facts"], "--index", "require", *SMALL, status=1)
    assert "stoker index" in refused.stderr
    changed = run(stoker, sets["facts"], "--errors.masked", 1)
    assert changed["digest"] != first["digest"] and changed["state"] != first["state"]
    report = index(stoker, sets["facts"])
    assert report["records_parsed"] == 0 and report["media_headers_read"] == 0
    # What a record states has no second opinion: a wrong size is masked, in place, when the picture is decoded.
    assert changed["failures"]["masked"] == 4 and changed["samples"] == first["samples"]
    sets.write_facts()
    assert run(stoker, sets["facts"])["digest"] == first["digest"]


@pytest.mark.parametrize("mode", ["auto", "stream"])
def test_a_state_does_not_go_on_with_another_file(stoker, sets, tmp_path, mode):
    options = ["--index", mode, *SMALL]
    stoker("run", sets["facts"], "--steps", 2, "--state", tmp_path / "state", *options)
    sets.write_facts({sets.names[0]: {"width": 99}})
    refused = stoker("run", sets["facts"], "--steps", 3, "--resume", tmp_path / "state", *options, status=2)
    assert "data" in refused.stderr


def test_verify_reads_what_is_stated_too(stoker, sets):
    name = sets.names[2]
    sets.write_facts({name: {"width": 7}})
    report = index(stoker, sets["facts"], "--index", "verify")
    assert report["media_headers_read"] == COUNT and report["usable"] == 2 * COUNT + 1
    # It knows better then, so nothing is masked.
    assert run(stoker, sets["facts"], "--index", "verify")["digest"] == run(stoker, sets["header"])["digest"]


def test_a_picture_that_is_not_there_is_found_all_the_same(stoker, sets):
    (sets.folder / "pictures" / sets.names[5]).unlink()
    report = index(stoker, sets["facts"])
    [missing] = report["unusable"].values()
    assert missing["count"] == 2 and sets.names[5] in missing["examples"][0]["message"]


def test_records_come_first_and_other_lines_are_passed_over(stoker, sets):
    sets.write_facts(more=[{"path": "/elsewhere/x.jpg", "width": 1, "height": 1}, {"path": "unused.jpg", "width": 1, "height": 1}])
    digest = run(stoker, sets["facts"])["digest"]
    wrong = {name: {"width": 5, "height": 5} for name in sets.names}
    sets.write_facts(wrong)
    assert run(stoker, sets["record"], "--set", f"data.set.facts={sets.folder}/facts.jsonl")["digest"] == digest


def test_replay_show_and_plan_know_it(stoker, sets):
    for command in ("plan",), ("show", "set/r3"), ("replay", "--step", 1):
        outputs = [stoker(command[0], sets[kind], *command[1:]).stdout.replace(f"/{kind}/", "/") for kind in ("record", "facts")]
        assert outputs[1] and (command[0] != "show" or outputs[0] == outputs[1])


# --- what is refused ---

@pytest.mark.parametrize("line, words", [
    ('{"path": "0.jpg", "width": 1, "height": 1}', "line 1"), ('{"path": "./x/../0.jpg", "width": 1, "height": 1}', "line 1"),
    ('{"path": "new.jpg", "width": 1}', "height is no whole number"), ('{"path": "new.jpg"', "byte"), ("[]", "is an object"),
    ('{"width": 1, "height": 1}', "no path")])
@pytest.mark.parametrize("mode", ["auto", "stream"])
def test_a_fault_names_file_and_line(stoker, sets, line, words, mode):
    with open(sets.folder / "facts.jsonl", "a") as file:
        file.write("\n" + line + "\n")
    message = stoker("plan", sets["facts"], "--index", mode, *SMALL, status=2).stderr
    assert words in message and f"facts.jsonl:{COUNT + 2}" in message


@pytest.mark.parametrize("path", ["nowhere.jsonl", "pictures", "ftp://host/facts.jsonl"])
def test_a_file_that_is_none_is_a_fault_of_the_configuration(stoker, sets, path):
    text = sets["facts"].read_text().replace("../facts.jsonl", path if "://" in path else f"../{path}")
    sets["facts"].write_text(text)
    message = stoker("plan", sets["facts"], status=2).stderr
    assert "facts" in message and path in message
