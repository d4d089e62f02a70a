"""Field reports (d), and those of (g) on what a batch holds: visual tokens, positions, rows joined, counts."""
import json

import numpy
import pytest
from field_set import BUDGET, chat, encode, gradient
from PIL import Image

PICTURES = {f"{i}.png": gradient(64, 64 + 32 * i) for i in range(6)}


def mrope(ids, grids, pad):
    """The positions of one sample: text counts on, a block of pads spans its grid (the reference's rule in words)."""
    out, at, following, grids = [], 0, 0, iter(grids)
    while at < len(ids):
        if ids[at] != pad:
            out.append((following,) * 3)
            at, following = at + 1, following + 1
            continue
        _, height, width = next(grids)
        block = [(following, following + row, following + column) for row in range(height // 2) for column in range(width // 2)]
        out += block
        at, following = at + len(block), following + max(height, width) // 2
    return numpy.array(out).T


def with_images(count, words="What?", first=0):
    return chat("<image>" * count + words, image=[f"{first + i}.png" for i in range(count)])


# --- positions ---

def test_d15_later_images_get_their_grid_too(field):
    bare = {"user": {"before": "<|im_start|>user", "after": ""}, "image": "<|vision_start|><|image_pad|>",
            "assistant": {"before": "", "after": "<|im_end|>", "train": ["text", "<|im_end|>"]}}
    (sample,) = field([chat("<image>5<image>", "", image=["0.png", "0.png"])], PICTURES, template=bare).samples()
    assert sample.tokens == 14 and sample.grids == [(1, 4, 4)] * 2
    assert sample.positions.tolist() == [[0, 1, 2, 3, 3, 3, 3, 5, 6, 7, 7, 7, 7, 9], [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 7, 8, 8, 9],
                                         [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 7, 8, 9]]
    assert sample.positions.max() + 1 - sample.tokens == -4
    for sample in field([with_images(n) for n in range(5)], PICTURES).samples():
        assert numpy.array_equal(sample.positions, mrope(sample.ids, sample.grids, field.tokens.image_pad))


def flat(field, records, **options):
    """The one flat batch of all records, and its samples as they are alone."""
    one = field(records, PICTURES, batch=len(records), layout="flat", **options)
    return *one.batch(), field(records, PICTURES, **options).samples()


def test_d17_samples_of_a_joined_row_have_the_positions_of_those_alone(field):
    fields, about, alone = flat(field, [with_images(0), with_images(1), with_images(2, first=1)])
    positions, total = fields["position_ids"], sum(s.tokens for s in alone)
    assert positions.shape == (4, 1, total) and [s["offset"] for s in about["samples"]] == list(numpy.cumsum([0] + [s.tokens for s in alone])[:-1])
    for where, sample in zip(about["samples"], alone, strict=True):
        part = positions[:, 0, where["offset"]:where["offset"] + where["tokens"]]
        assert numpy.array_equal(part[1:], sample.positions) and numpy.array_equal(part[0], numpy.arange(sample.tokens))
        assert (part[:, 0] == 0).all()


def test_d17_samples_of_packed_rows_too(field):
    records = [with_images(n % 3, first=n % 2) for n in range(9)]
    alone = {sample.line: sample for sample in field(records, PICTURES).samples()}
    row_tokens = 2 * max(sample.tokens for sample in alone.values())
    one = field(records, PICTURES, batch=4, layout="packed", row_tokens=row_tokens, segment_multiple=8)
    seen = set()
    for fields, about in one.dump().values():
        ids, positions, bounds = fields["input_ids"], fields["position_ids"], fields["cu_seqlens_padded"]
        assert ids.shape == (4, row_tokens) and positions.shape == (4, 4, row_tokens) and bounds[-1] == 4 * row_tokens
        for where in about["samples"]:
            if where["id"] == "":
                continue
            row, part = where["row"], slice(where["offset"], where["offset"] + where["tokens"])
            sample = alone[where["line"]]
            assert where["offset"] % 8 == 0 and row * row_tokens + where["offset"] in bounds
            assert numpy.array_equal(ids[row, part], sample.ids) and numpy.array_equal(fields["labels"][row, part], sample.labels)
            assert numpy.array_equal(positions[1:, row, part], sample.positions)
            assert numpy.array_equal(positions[0, row, part], numpy.arange(sample.tokens))
            seen.add(where["line"])
    assert seen == set(alone)


def test_d19_a_neighbour_in_a_joined_row_changes_nothing(field):
    fields, about, alone = flat(field, [with_images(1), with_images(2, first=1)])
    lengths = [sample.tokens for sample in alone]
    assert fields["cu_seqlens"].dtype == numpy.int32 and fields["cu_seqlens"].tolist() == [0, lengths[0], sum(lengths)]
    assert "attention_mask" not in fields and int(fields["max_seqlen"]) == max(lengths)
    other, _, _ = flat(field, [chat("Something else, and longer than that."), with_images(2, first=1)])
    for name in ("input_ids", "labels", "position_ids", "mm_token_type_ids"):
        assert numpy.array_equal(fields[name][..., -lengths[1]:], other[name][..., -lengths[1]:]), name
    patches = sum(h * w for _, h, w in alone[1].grids)
    assert numpy.array_equal(fields["pixel_bytes"][-patches:], other["pixel_bytes"])


# --- counts ---

@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_d21_offsets_say_which_images_belong_to_which_row(field, layout):
    counts = [0, 1, 3, 2, 0, 1]
    one = field([with_images(n) for n in counts], PICTURES, batch=6, layout=layout, balance="none")
    for flags, chunks in (((), [counts]), (("--micro-batch", 4), [counts[:4], counts[4:]])):
        for (fields, about), chunk in zip(one.dump(*flags).values(), chunks, strict=True):
            assert fields["image_offsets"].dtype == numpy.int32
            offsets = fields["image_offsets"]
            assert offsets[0] == 0 and offsets[-1] == sum(chunk) == len(fields["image_grid_thw"]) == about["images"]
            if layout == "padded":
                assert numpy.diff(offsets).tolist() == chunk + [0] * (len(offsets) - 1 - len(chunk))     # filler has none
            assert fields["image_grid_thw"].prod(axis=1).sum() == len(fields["pixel_bytes"])
            assert (fields["input_ids"] == field.tokens.image_pad).sum() == len(fields["pixel_bytes"]) // 4


def test_d23_what_is_planned_is_what_comes(field):
    one = field([with_images(1), chat("Text."), chat("<image>", image="hd.png")], {**PICTURES, "hd.png": gradient(1080, 1920)}, **BUDGET)
    alone = field([chat("<image>", image="hd.png")], {"hd.png": gradient(1080, 1920)}, **BUDGET)
    assert alone.index()["visual_tokens"] == 2040 and alone.samples()[0].grids == [(1, 68, 120)]
    plan = json.loads(one("plan", "--json").stdout)
    samples = one.samples()
    run = one.run()
    assert plan["tokens"] == sum(s.tokens for s in samples) == run["tokens"]
    assert plan["visual_tokens"] == sum((s.ids == field.tokens.image_pad).sum() for s in samples)
    assert plan["supervised_tokens"] == sum((s.labels != -100).sum() for s in samples) == run["supervised_tokens"]


def test_d24_max_pixels_is_kept_and_unknown_keys_are_refused(field):
    files = {"hd.png": gradient(1080, 1920)}
    rows = [chat("<image>", image="hd.png")]
    for one in (field(rows, files, min_pixels=65536, max_pixels=200000), field(rows, files, data={"min_pixels": 65536, "max_pixels": 200000})):
        assert one.index()["visual_tokens"] == 180 and one.samples()[0].pictures[0].shape == (320, 576, 3)
    for one in (field(rows, files, max_pixel=200000), field(rows, files, data={"max_pixel": 200000})):
        done = one("index", status=2)
        assert "max_pixel" in done.stderr and "max_pixels" in done.stderr
    own = {"messages": [{"role": "user", "content": [{"type": "image", "image": "hd.png", "max_pixels": 200000}]}, {"role": "assistant", "content": "!"}]}
    assert "max_pixels" in field([own], files).reasons()["a kind of media that is not supported"][0][1]


# --- ranks ---

@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_g01_a_rank_without_a_picture_gets_one_of_no_weight(field, layout):
    one = field([with_images(1), with_images(0), with_images(0), with_images(2)], PICTURES, batch=2, layout=layout, balance="none")
    for step, images in enumerate(([1, 0], [0, 2])):
        plain, filled = one.dump("--world", 2, step=step), one.dump("--world", 2, "--filler-image", "true", step=step)
        for rank in range(2):
            (before, about), (fields, more) = plain[rank, 0], filled[rank, 0]
            assert about["images"] == more["images"] == images[rank]          # without the filler
            assert (about["loss_tokens"], about["step_loss_tokens"]) == (more["loss_tokens"], more["step_loss_tokens"])
            tokens = about["samples"][0]["tokens"]
            for name in ("input_ids", "labels", "position_ids"):
                assert numpy.array_equal(fields[name][..., :tokens], before[name][..., :tokens]), name
            if not images[rank]:
                assert "pixel_bytes" not in before and fields["pixel_bytes"].shape[0] == 4 and fields["image_grid_thw"].tolist() == [[1, 2, 2]]
                assert (fields["labels"][..., tokens:] == -100).all() and [s["status"] for s in more["samples"]] == ["made", "filler"]


def test_g09_pictures_of_any_kind_and_size_make_one_batch(field):
    modes, sizes = ["L", "RGB", "RGBA", "CMYK"], [(1, 1), (17, 300), (64, 64), (3000, 4000)]
    files = {}
    for mode in modes:
        form, options = ("JPEG", {}) if mode == "CMYK" else ("PNG", {"compress_level": 1})
        for height, width in sizes:
            files[f"{mode}-{height}x{width}"] = encode(Image.fromarray(gradient(height, width)).convert(mode), form, **options)
    one = field([chat("<image>", image=name) for name in files], files, max_pixels=65536)
    samples = one.samples()
    assert len(samples) == 16 and all(s.pictures[0].ndim == 3 and s.pictures[0].shape[2] == 3 and s.status == "made" for s in samples)
    broken = field([chat("<image>", image=name) for name in ("good.png", "bad one.png")], {"good.png": gradient(64, 64), "bad one.png": b"rubbish"})
    assert [sample.line for sample in broken.samples()] == [1] and "bad one.png" in broken.reasons()["not an image"][0][1]


def test_g19_trained_tokens_are_counted_by_rank_and_step(field):
    rows = [chat("A long question. " * 40, "No."), chat("?", "A long answer. " * 40)] * 2
    one = field(rows, batch=4)
    parts = one.dump("--world", 2)
    assert len(parts) == 2
    counts = [(fields["labels"] != -100).sum() for fields, _ in parts.values()]
    assert [about["loss_tokens"] for _, about in parts.values()] == counts
    assert {about["step_loss_tokens"] for _, about in parts.values()} == {sum(counts)}
    assert one.batch()[1]["step_loss_tokens"] == sum(counts)
    split = [about["loss_tokens"] for _, about in one.dump("--world", 2, "--micro-batch", 1).values()]
    assert len(split) == 4 and sum(split) == sum(counts)
