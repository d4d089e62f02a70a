"""Small data sets, each made for one test, taken through the command line; and what comes out of them.

`Sets` (fixture `field`) makes one from records and files.  A set is indexed, and all of its usable records are read
back from one dumped batch in the order of the files, sample by sample: ids, labels, positions, grids, pictures.

Pictures whose sides are multiples of 32 pass the resize unchanged here (min_pixels is 1024, one visual token, unless
a test says otherwise), so that their pixels can be compared with what Pillow decodes.

Not here: what is expected (the tests), reference goldens (goldens.json, made by tools/make-field-goldens).
"""
import base64
import collections
import io
import json
import os
import subprocess
import threading

import numpy
from PIL import Image

FACTOR, PATCH, MERGE = 32, 16, 2

#: The template of the sample model's folder, as a turn format.
TURNS = {
    "system": {"before": "<|im_start|>system\n", "after": "<|im_end|>\n"},
    "user": {"before": "<|im_start|>user\n", "after": "<|im_end|>\n"},
    "assistant": {"before": "<|im_start|>assistant\n", "after": "<|im_end|>\n", "train": ["text", "<|im_end|>\n"]},
    "tool": {"before": "<|im_start|>tool\n", "after": "<|im_end|>\n"},
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
}

#: The Qwen3-VL image budget, which the figures of the reports stand for.
BUDGET = {"min_pixels": 65536, "max_pixels": 16777216}

Sample = collections.namedtuple("Sample", "id line status ids labels positions grids pictures tokens")


# --- records ---

def chat(user, answer="Yes.", **more):
    """One question and its answer in LLaVA's form; media and other keys as keywords."""
    return talk(("human", user), ("gpt", answer), **more)


def talk(*turns, **more):
    """Turns of (from, value)."""
    return {**more, "conversations": [{"from": role, "value": text} for role, text in turns]}


def messages(*turns, **more):
    """Turns of (role, content)."""
    return {**more, "messages": [{"role": role, "content": content} for role, content in turns]}


def lines(records, end="\n"):
    """JSONL."""
    return "".join(json.dumps(record) + end for record in records).encode()


# --- pictures ---

def gradient(height, width):
    """An RGB picture in which every place has its own colour."""
    y, x = numpy.mgrid[:height, :width]
    planes = [x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1), (7 * x + 13 * y) % 256]
    return numpy.stack(planes, axis=-1).astype(numpy.uint8)


def encode(picture, form="PNG", **options):
    """The bytes of a file; picture is an array or a Pillow image."""
    out = io.BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(out, form, **options)
    return out.getvalue()


def decode(data):
    """What Pillow makes of a file, as RGB."""
    return numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def data_uri(data, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(data).decode()


def unpatch(patches, grid):
    """The picture of one medium, from its rows of pixel_bytes."""
    t, h, w = grid
    assert t == 1
    blocks = patches.reshape(h // MERGE, w // MERGE, MERGE, MERGE, 3, PATCH, PATCH)
    return blocks.transpose(0, 2, 5, 1, 3, 6, 4).reshape(h * PATCH, w * PATCH, 3)


# --- ids ---

class Tokens:
    """Ids to text, by a folder's tokenizer.json (byte-level BPE)."""

    def __init__(self, folder):
        whole = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        clear = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [byte for byte in range(256) if byte not in clear]
        byte_of = {chr(byte): byte for byte in clear} | {chr(256 + i): byte for i, byte in enumerate(rest)}
        self.bytes_of = {i: bytes(byte_of[c] for c in piece) for piece, i in whole["model"]["vocab"].items()}
        self.added = {token["content"]: token["id"] for token in whole["added_tokens"]}
        self.bytes_of |= {i: content.encode() for content, i in self.added.items()}
        self.im_end, self.image_pad = self.added["<|im_end|>"], self.added["<|image_pad|>"]

    def text(self, ids):
        """Each run of pads as one."""
        out, last = [], None
        for i in map(int, ids):
            if not i == last == self.image_pad:
                out.append(self.bytes_of[i])
            last = i
        return b"".join(out).decode()

    def trained(self, sample):
        """The texts of the trained spans, in order."""
        assert ((sample.labels == -100) | (sample.labels == sample.ids)).all()
        marks = numpy.flatnonzero(numpy.diff(numpy.concatenate([[0], sample.labels != -100, [0]])))
        return [self.text(sample.ids[a:b]) for a, b in zip(marks[::2], marks[1::2])]


# --- sets ---

class FieldSet:
    """A manifest, its media and a configuration in a folder of their own."""

    def __init__(self, stoker, program, folder, model, manifest, files, data, options):
        self.stoker, self.program, self.folder, self.config = stoker, program, folder, folder / "stoker.yaml"
        folder.mkdir()
        for name, content in files.items():
            self.put(name, content)
        paths = list(manifest)
        for name, content in manifest.items():
            self.put(name, content if isinstance(content, bytes) else lines(content))
        one = {"path": paths[0] if len(paths) == 1 else paths, **data}
        self.write({"model": str(model), "data": [one], "batch": 1, "shuffle": False, "min_pixels": 1024,
                    "errors": {"unusable": 1, "masked": 1}, "template": TURNS, **options})

    def put(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else encode(content))

    def write(self, configuration):
        """JSON is YAML."""
        self.config.write_text(json.dumps({k: v for k, v in configuration.items() if v is not None}, indent=1))

    def __call__(self, command, *flags, **more):
        return self.stoker(command, self.config, *flags, **more)

    def index(self, *flags, status=0):
        """The report of the set."""
        return json.loads(self("index", "--json", *flags, status=status).stdout)["sets"][0]

    def reasons(self, *flags):
        """{reason: [(line, message) of its examples, at most three]}."""
        found = self.index(*flags)["unusable"]
        return {reason: [(e["line"], e["message"]) for e in one["examples"]] for reason, one in found.items()}

    def findings(self, *flags):
        """{what was found beside: its count}."""
        return {name: one["count"] for name, one in self.index(*flags)["findings"].items()}

    def run(self, *flags, **more):
        return json.loads(self("run", "--json", *flags, **more).stdout)

    def dump(self, *flags, step=0):
        """{(rank, micro): (fields, batch.json)} of a step."""
        folder = self.folder / f"dump-{len(list(self.folder.glob('dump-*')))}"
        self("replay", "--step", step, "--dump", folder, *flags)
        out = {}
        for one in sorted(folder.iterdir()):
            about = json.loads((one / "batch.json").read_text())
            fields = {path.stem: numpy.load(path) for path in one.glob("*.npy")}
            out[about["rank"], about["micro"]] = fields, about
        return out

    def batch(self, *flags, step=0):
        """The fields and batch.json of a step that is one micro-batch."""
        (one,) = self.dump(*flags, step=step).values()
        return one

    def samples(self, *flags):
        """All usable records in the order of the files."""
        usable = self.index()["usable"]
        return split(*self.batch("--batch", usable, *flags)) if usable else []

    def order(self, *flags):
        """The sample ids of a whole run, step by step, filler left out."""
        steps = json.loads(self("plan", "--json", *flags).stdout)["steps"]
        return [[s["id"] for s in self.batch(*flags, step=step)[1]["samples"] if s["status"] != "filler"] for step in range(steps)]

    def watch(self, *arguments, limit=None):
        """Run a command to its end and look at its process meanwhile: (exit status, stdout, stderr, peaks)."""
        run = subprocess.Popen([self.program, arguments[0], self.config, *map(str, arguments[1:])], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
        peaks, over = collections.Counter(), threading.Event()

        def look():
            while not over.wait(0.001):
                look_at(run.pid, peaks)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            out, err = run.communicate(timeout=300)
        finally:
            over.set()
            thread.join()
        return run.returncode, out, err, peaks


def look_at(pid, peaks):
    """Raise the peaks to what /proc says now: anonymous and whole memory in bytes, open files, threads."""
    try:
        with open(f"/proc/{pid}/status") as status:
            facts = dict(line.split(":", 1) for line in status)
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return
    for name, key in (("anonymous", "RssAnon"), ("whole", "VmHWM")):
        if key in facts:
            peaks[name] = max(peaks[name], int(facts[key].split()[0]) * 1024)
    peaks["files"] = max(peaks["files"], files)
    peaks["threads"] = max(peaks["threads"], int(facts["Threads"]))


def split(fields, about):
    """The samples of a padded micro-batch."""
    grids = fields.get("image_grid_thw", numpy.zeros((0, 3), numpy.int64))
    starts = numpy.concatenate([[0], numpy.cumsum(grids.prod(axis=1))]).astype(int)
    out = []
    for s in (s for s in about["samples"] if s["status"] != "filler"):
        row, n = s["row"], s["tokens"]
        media = range(*fields["image_offsets"][row:row + 2])
        pictures = [unpatch(fields["pixel_bytes"][starts[i]:starts[i + 1]], grids[i]) for i in media]
        out.append(Sample(s["id"], s["line"], s["status"], fields["input_ids"][row, :n], fields["labels"][row, :n],
                          fields["position_ids"][:, row, :n], [tuple(map(int, grids[i])) for i in media], pictures, n))
    return out


def same(samples, others):
    """Whether two lists of samples hold the same, sample ids included."""
    return len(samples) == len(others) and all(map(same_sample, samples, others))


def same_sample(a, b):
    """Whether ids, labels, positions, grids, pictures and the sample id are the same."""
    return (a.id, a.tokens, a.grids) == (b.id, b.tokens, b.grids) and all(
        numpy.array_equal(p, q) for p, q in [(a.ids, b.ids), (a.labels, b.labels), (a.positions, b.positions),
                                             *zip(a.pictures, b.pictures)])


class Sets:
    """Makes sets, each in its own folder."""

    def __init__(self, stoker, program, model, folder):
        self.stoker, self.program, self.model, self.folder, self.count = stoker, program, model, folder, 0
        self.tokens = Tokens(model)

    def __call__(self, records=(), files=None, *, name="train.jsonl", manifests=None, data=None, model=None, **options):
        """records: a list, or the bytes of the manifest; manifests: {name: either} instead of one; data: keys of the
        data set; options: of the configuration."""
        self.count += 1
        manifests = {name: records} if manifests is None else manifests
        return FieldSet(self.stoker, self.program, self.folder / f"set-{self.count}", model or self.model, manifests,
                        files or {}, data or {}, options)

    def text(self, sample):
        return self.tokens.text(sample.ids)

    def trained(self, sample):
        return self.tokens.trained(sample)
