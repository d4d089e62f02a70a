"""Whether Stoker makes what a checkpoint's own processor makes, sample by sample.

    the record ─► messages ─┬─► the processor: template, tokenizer, pictures ─► ids, grids, pixel_values ─┐
                            └─► Stoker, as the trainer would get it ──────────► ids, grids, pixel_values ─┴─► differences, in words

What would explain a difference is not guessed: the sample is made again under other options, until one gives the processor's values.

Not here: how records are read (docs/dialects.md); both sides get the messages that Stoker read, unless the caller reads them himself.
"""
from __future__ import annotations

import base64
import io
import itertools
import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TextIO

import numpy as np
from transformers.image_utils import load_image

from . import _core, torch
from ._batch import PixelRule
from ._options import Config, read

NEAR_TOKENS, NEAR_CHARACTERS = 8, 30    # shown before a place
GIVEN_AT_MOST = 2                       # of those that the same explains, in full
PROFILES = ("hf", "pil-13", "pil-12", "pil-11", "qwen-vl-utils")

#: Options under which a picture is made again, the likely ones first.
PIXEL_TRIALS: list[dict[str, Any]] = [dict(sorted(trial.items())) for trial in [
    {"alpha": "white"}, {"alpha": "drop"}, {"orientation": "ignore"}, {"orientation": "apply"}, *({"profile": name} for name in PROFILES),
    *({"profile": name, **more} for name in PROFILES for more in ({"alpha": "white"}, {"alpha": "drop"}, {"orientation": "ignore"},
                                                                  {"alpha": "white", "orientation": "ignore"}))]]
TEXT_TRIALS: list[dict[str, Any]] = [{"control_tokens": "sanitize"}, {"control_tokens": "reference"}, {"tag_space": "strip"}]


class Difference(NamedTuple):
    """A place where the processor and Stoker part."""

    sample: str
    file: str
    line: int
    what: str
    """``"text"``, ``"grid"``, ``"input_ids"``, ``"labels"``, ``"pixel_values"`` or ``"masked"``."""
    words: str
    options: dict[str, Any] | None
    """Under which Stoker makes the processor's values; None: none was found, or looked for."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: sample {self.sample}: {self.what}: {self.words}"


class Report(NamedTuple):
    """What a check found.  It is true when there is no difference."""

    samples: int
    images: int
    differences: list[Difference]
    notes: list[str]
    """What could not be compared."""

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        lines: list[str] = []
        for alike in self._alike():
            lines += map(str, alike[:GIVEN_AT_MOST])
            if len(alike) > GIVEN_AT_MOST:
                lines.append(f"and {len(alike) - GIVEN_AT_MOST} more of {alike[0].what}" + (f", equal with {_say(alike[0].options)}" if alike[0].options else ""))
        different = len({each.sample for each in self.differences})
        return "\n".join([*lines, *self.notes, f"stoker.hf.check: {self.samples} samples, {self.images} images: " +
                          (f"{different} samples differ from the processor's" if different else "no difference")])

    def _alike(self) -> list[list[Difference]]:
        """By kind and explanation, in the order of their first."""
        found: dict[str, list[Difference]] = {}
        for each in self.differences:
            found.setdefault(f"{each.what} {each.options}", []).append(each)
        return list(found.values())


# --- the two sides ---

class _Side(NamedTuple):
    """A sample as one of them makes it."""

    text: str
    input_ids: list[int]
    labels: list[int] | None
    grids: list[tuple[int, ...]]
    pixels: Any
    """float32 [patches, columns]."""

    def image(self, number: int) -> Any:
        sizes = [int(np.prod(grid)) for grid in self.grids]
        return self.pixels[sum(sizes[:number]):sum(sizes[:number + 1])]


def _read_bytes(address: str) -> bytes:
    if address.startswith("data:"):
        return base64.b64decode(address.partition(",")[2])
    if address.startswith(("http://", "https://")):
        with urllib.request.urlopen(address, timeout=60) as answer:
            return bytes(answer.read())
    with open(address, "rb") as file:
        return file.read()


def _open_picture(address: str, images: str) -> Any:
    """As transformers loads a path, or as Pillow opens a file."""
    from PIL import Image
    picture = Image.open(io.BytesIO(_read_bytes(address)))
    return load_image(picture) if images == "path" else picture


def _parts(messages: list[Any]) -> Iterator[dict[str, Any]]:
    for message in messages:
        if not isinstance(message["content"], str):
            yield from message["content"]


def _theirs(processor: Any, messages: list[Any], tools: Any, images: str) -> _Side:
    """By the processor's own ways: template, then text and pictures."""
    pictures = [_open_picture(part["image"], images) for part in _parts(messages) if part["type"] == "image"]
    more = {"tools": tools} if tools else {}
    text = processor.apply_chat_template(messages, tokenize=False, **more)
    made = processor(text=[text], images=pictures or None, return_tensors="pt")
    labels = None
    if re.search(r"\{%-?\s*generation\b", str(processor.chat_template)):
        found = iter(pictures)
        shown = [message if isinstance(message["content"], str) else
                 {**message, "content": [{**part, "image": next(found)} if part["type"] == "image" else part for part in message["content"]]}
                 for message in messages]
        marked = processor.apply_chat_template(shown, tokenize=True, return_dict=True, return_tensors="pt", return_assistant_tokens_mask=True, **more)
        labels = [token if trained else -100 for token, trained in zip(marked["input_ids"][0].tolist(), np.asarray(marked["assistant_masks"])[0])]
    grids = [tuple(grid) for grid in made["image_grid_thw"].tolist()] if pictures else []
    return _Side(text, made["input_ids"][0].tolist(), labels, grids, made["pixel_values"].float().numpy() if pictures else None)


def _ours(batch: Any, view: Mapping[str, Any]) -> _Side:
    """The one row of a micro-batch."""
    length = batch.samples[0].tokens
    grids = [tuple(grid) for grid in batch["image_grid_thw"].tolist()] if batch.images else []
    return _Side(view["rendered"].decode(errors="replace"), batch["input_ids"][0, :length].tolist(), batch["labels"][0, :length].tolist(), grids,
                 batch["pixel_values"].numpy() if batch.images else None)


def _pixel_values(rgb: bytes, grid: tuple[int, ...], rule: PixelRule, merge: int) -> Any:
    """A picture as the model sees it, as patches: float32 [patches, columns]."""
    _, rows, columns = grid
    side = round((len(rgb) / (3 * rows * columns)) ** 0.5)
    cut = np.frombuffer(rgb, np.uint8).reshape(rows // merge, merge, side, columns // merge, merge, side, 3)
    patches = cut.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, side * side)
    values = np.stack([rule.table[channel][patches[:, channel]] for channel in range(3)], axis=1)
    return np.repeat(values[:, :, None], rule.temporal, axis=2).reshape(rows * columns, -1)


# --- comparing ---

def _say(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in options.items())


def _first_difference(ours: Any, theirs: Any) -> int:
    return next((at for at, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))


class _Comparison:
    """Of one sample after the other."""

    def __init__(self, processor: Any, file: str | bytes | None, pairs: list[tuple[str, str]], images: str) -> None:
        self._processor, self._file, self._pairs, self._images = processor, file, pairs, images
        self._explained: list[dict[str, Any]] = []    # what explained an earlier difference is tried first
        self.notes: dict[str, int] = {}

    def view(self, sample: str, options: Mapping[str, Any] = {}) -> dict[str, Any]:
        return _core.sample(self._file, self._pairs + read(None, options)[1], "train", sample)

    def find(self, trials: list[dict[str, Any]], fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Options under which something is so."""
        known = [trial for trial in self._explained if trial in trials]
        for trial in sorted(known, key=len) + [trial for trial in trials if trial not in known]:
            if fits(trial):
                self._explained = [trial] + [each for each in self._explained if each != trial]
                return trial
        return None

    def compare(self, ours: _Side, theirs: _Side, sample: str) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        """Kinds, words and options; what follows from an earlier difference is not told."""
        if ours.text != theirs.text:
            yield self._text(ours, theirs, sample)
        elif ours.grids != theirs.grids:
            yield self._grid(ours, theirs, sample)
        elif ours.input_ids != theirs.input_ids:
            at = _first_difference(ours.input_ids, theirs.input_ids)
            yield ("input_ids", f"token {at} is {self._token(ours.input_ids, at)} here, {self._token(theirs.input_ids, at)} by the processor, behind "
                   f"{self._near(theirs.input_ids, at)}: the text is the same, so `model` has another tokenizer than the processor", None)
        elif theirs.labels is None:
            self.notes["labels: not compared: the processor's template does not mark answers ({% generation %})"] = 1
        elif ours.labels != theirs.labels:
            yield self._labels(ours, theirs)
        for number, (grid, other) in enumerate(zip(ours.grids, theirs.grids)):
            if grid == other and not np.array_equal(ours.image(number), theirs.image(number)):
                yield self._pixels(ours.image(number), theirs.image(number), sample, number, grid)

    def _token(self, ids: list[int], at: int) -> str:
        return f"{ids[at]} {self._decode(ids[at:at + 1])!r}" if at < len(ids) else "none"

    def _near(self, ids: list[int], at: int) -> str:
        return repr(self._decode(ids[max(0, at - NEAR_TOKENS):at]))

    def _decode(self, ids: list[int]) -> str:
        return str(self._processor.tokenizer.decode(ids))

    def _text(self, ours: _Side, theirs: _Side, sample: str) -> tuple[str, str, dict[str, Any] | None]:
        at = _first_difference(ours.text, theirs.text)
        found = self.find(TEXT_TRIALS, lambda trial: self.view(sample, trial)["rendered"].decode(errors="replace") == theirs.text)
        near = slice(max(0, at - NEAR_CHARACTERS), at + NEAR_CHARACTERS)
        return ("text", f"character {at}: {ours.text[near]!r} here, {theirs.text[near]!r} by the processor's template: " +
                (f"equal with {_say(found)}" if found else "`template` is another one, or the messages are"), found)

    def _grid(self, ours: _Side, theirs: _Side, sample: str) -> tuple[str, str, dict[str, Any] | None]:
        number = _first_difference(ours.grids, theirs.grids)
        size = dict(getattr(self._processor.image_processor, "size", None) or {})
        limits = {"min_pixels": size.get("shortest_edge"), "max_pixels": size.get("longest_edge")}
        trials = [limits, *PIXEL_TRIALS, *({**limits, **trial} for trial in PIXEL_TRIALS)] if all(limits.values()) else PIXEL_TRIALS
        found = self.find(trials, lambda trial: [image["grid"] for image in self.view(sample, trial)["images"]] == theirs.grids)
        both = [grids[number] if number < len(grids) else "none" for grids in (ours.grids, theirs.grids)]
        return ("grid", f"image {number} has {both[0]} patches (t, h, w) here, {both[1]} by the processor: " +
                (f"equal with {_say(found)}" if found else "no option explains it"), found)

    def _labels(self, ours: _Side, theirs: _Side) -> tuple[str, str, dict[str, Any] | None]:
        assert ours.labels is not None and theirs.labels is not None
        at = _first_difference(ours.labels, theirs.labels)
        trained = "here" if at < len(ours.labels) and ours.labels[at] != -100 else "by the processor's template"
        return ("labels", f"token {at}, {self._token(ours.input_ids, at)} behind {self._near(ours.input_ids, at)}, is trained {trained} alone: see "
                "`labels`, and `train` of a turn", None)

    def _pixels(self, ours: Any, theirs: Any, sample: str, number: int, grid: tuple[int, ...]) -> tuple[str, str, dict[str, Any] | None]:
        merge = int(self._processor.image_processor.merge_size)

        def fits(trial: dict[str, Any]) -> bool:
            image = self.view(sample, trial)["images"][number]
            rule = PixelRule(self._file, self._pairs + read(None, trial)[1], "train")
            return bool(image["rgb"]) and image["grid"] == grid and np.array_equal(_pixel_values(image["rgb"], grid, rule, merge), theirs)

        if ours.shape != theirs.shape:
            return "pixel_values", f"image {number}: {ours.shape} here, {theirs.shape} by the processor", None
        found = self.find(PIXEL_TRIALS, fits)
        patch, column = (int(at) for at in np.argwhere(ours != theirs)[0])
        share = (ours != theirs).mean()
        return ("pixel_values", f"image {number}, patch {patch}, value {column}: {ours[patch, column]:.6f} here, {theirs[patch, column]:.6f} by the "
                f"processor; {share:.1%} of the values differ, by {np.abs(ours - theirs).max():.6f} at most: " +
                (f"equal with {_say(found)}" if found else "no option explains it (docs/huggingface.md)"), found)


def check(processor: Any, config: Config, *, n: int = 8, messages: Callable[[dict[str, Any]], list[Any]] | None = None,
          images: Literal["path", "pil"] = "path", file: TextIO | None = None, **options: Any) -> Report:
    """Run samples of your data through your own processor and through Stoker, and print where they differ.

    Parameters
    ----------
    processor : transformers.ProcessorMixin
        With ``tokenizer``, ``image_processor`` and a chat template, as ``AutoProcessor.from_pretrained`` gives it, set up as your
        training has it.
    config : path or mapping
        As of ``stoker.Loader``.  Of it the first ``n`` samples of the run are taken.
    n : int
        How many.
    messages : callable or None
        Makes messages of a record (a dict), as your own code does; the paths in them absolute.  None: as Stoker has read it.
    images : {"path", "pil"}
        How pictures come to the processor: as transformers loads a path (``apply_chat_template(tokenize=True)``), or as Pillow opens a
        file, not turned and not converted (data sets of ``datasets``, TRL).  The two differ over transparency and orientation.
    file : file or None
        Where to print; None: the standard output.
    **options
        Options over those of the configuration.

    Returns
    -------
    Report
        True where nothing differs.  Labels are compared where the template marks answers; videos, and pictures that only
        Stoker can open (tars, S3), are not.

    Raises
    ------
    stoker.Error
        The configuration, as a loader says it.
    """
    path, pairs = read(config, options)
    comparison = _Comparison(processor, path, pairs, images)
    found: list[Difference] = []
    samples = pictures = 0
    whole = {**options, "engine": "inprocess", "layout": "padded", "targets": "hf", "batch": 1, "micro_batch": 1, "filler_image": False,
             "pixels": "uint8"}
    with torch.Loader(config, device="cpu", **whole) as loader:
        for batch in itertools.islice(loader, n):
            sample = batch.samples[0]
            view = comparison.view(sample.id)
            told = json.loads(view["messages"])
            if messages:
                told["messages"] = messages(json.loads(view["record"]))
            samples, pictures = samples + 1, pictures + batch.images
            place = sample.id, view["file"], view["line"]
            if sample.masked:
                found.append(Difference(*place, "masked", f"Stoker masked it: {sample.reason}", None))
                continue
            unread = {part["type"] for part in _parts(told["messages"]) if part["type"] not in ("text", "image")}
            unread |= {part["image"].partition(":")[0] for part in _parts(told["messages"])
                       if part["type"] == "image" and part["image"].startswith(("s3://", "tar:"))}
            if unread:
                note = f"samples with {', '.join(sorted(unread))}: not compared"
                comparison.notes[note] = comparison.notes.get(note, 0) + 1
                continue
            theirs = _theirs(processor, told["messages"], told.get("tools"), images)
            found += [Difference(*place, *words) for words in comparison.compare(_ours(batch, view), theirs, sample.id)]
    report = Report(samples, pictures, found, list(comparison.notes))
    print(report, file=file or sys.stdout)
    return report
