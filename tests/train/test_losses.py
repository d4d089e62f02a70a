"""A tiny Qwen3-VL takes the batches as they are, and learns from them what it learns from the pipeline that people have."""
import collections
import itertools
import math
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
pytest.importorskip("transformers")
from plain_pipeline import OPTIONS, Plain, tiny_model  # noqa: E402
from tensor_loaders import load                        # noqa: E402, F401

LAYOUTS = [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}]
STEPS, BATCH = 20, 4


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Sums in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(source):
    return source / "examples/sample/model"


@pytest.fixture(scope="module")
def config(source, tmp_path_factory):
    """The sample set with a picture that breaks when it is decoded, and so many records that two epochs are 20 steps less two rows."""
    sample = tmp_path_factory.mktemp("losses") / "sample"
    shutil.copytree(source / "examples/sample", sample)
    records = (sample / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    broken = records[0].replace("harbour-1", "cut-1").replace("images/harbour.jpg", "faulty/cut.jpg")
    (sample / "train.jsonl").write_text("".join([*records[:STEPS * BATCH // 2 - 2], broken]), encoding="utf-8")
    return sample / "stoker.yaml"


def train(model, batches):
    """The losses of some steps."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_twenty_losses_are_those_of_the_pipeline_that_people_have(load, config, folder, layout):
    plain, kinds, taken = Plain(config), collections.Counter(), []

    def batches():
        for batch in load(layout=layout, **OPTIONS):
            taken.append(batch)
            yield batch

    losses = train(tiny_model(folder), batches())

    def plain_batches():
        for batch in taken:
            wanted = (plain.collate if layout == "padded" else plain.flatten)(batch.samples)
            for name in {"padded": ("input_ids", "labels", "attention_mask"), "flat": ("input_ids", "labels", "position_ids")}[layout]:
                assert torch.equal(wanted[name], batch[name]), name
            for sample in batch.samples:
                pictures = len(plain.row(sample)["grid"])
                kinds["filler" if sample.filler else "masked" if sample.masked else ("text", "single image", "several images")[min(pictures, 2)]] += 1
            yield wanted

    assert losses == train(tiny_model(folder), plain_batches())
    assert len(losses) == len(set(losses)) == STEPS and all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0] - 0.5
    assert kinds["masked"] == 2 and kinds["filler"] == 2 and min(kinds[kind] for kind in ("text", "single image", "several images")) > 1


def test_pixels_of_another_resize_are_seen_in_the_losses(load, folder):
    losses = [train(tiny_model(folder), itertools.islice(load(**options), 3)) for options in ({}, OPTIONS, OPTIONS)]
    assert losses[0] != losses[1] == losses[2]


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: options["layout"])
def test_each_layout_trains_under_the_defaults_of_transformers(load, folder, options):
    losses = train(tiny_model(folder), itertools.islice(load(**options), 3))
    assert all(5 < loss < 9 for loss in losses)       # about the logarithm of the vocabulary


@pytest.mark.parametrize("options", LAYOUTS[1:], ids=lambda options: options["layout"])
def test_samples_of_a_row_do_not_see_each_other(load, folder, options):
    """Field report D19: the model as it is, called as the adapters call it."""
    model = tiny_model(folder).eval()
    batch = next(load(**options))
    row = 0
    first, second = sorted((sample for sample in batch.samples if options["layout"] == "flat" or sample.row == row), key=lambda sample: sample.offset)[:2]
    changed = dict(batch, input_ids=batch["input_ids"].clone())
    words = (batch["mm_token_type_ids"][row] == 0) & (batch["input_ids"][row] < 1300)
    words[first.tokens:] = False
    changed["input_ids"][row, words] = (batch["input_ids"][row, words] + 7) % 1300
    places = slice(second.offset, second.offset + second.tokens)

    def logits(batch):
        with torch.no_grad():
            return model(**batch).logits[row]

    before, after = logits(batch), logits(changed)
    assert second.offset == first.tokens and words.sum() > 3
    assert not torch.equal(before[:first.tokens], after[:first.tokens]) and torch.equal(before[places], after[places])
    for each in (batch, changed):
        del each["use_cache"]
    assert not torch.allclose(logits(batch)[places], logits(changed)[places])


def test_a_filler_image_feeds_the_vision_tower_and_changes_no_loss(load, folder):
    """Field report G01: a micro-batch without a picture has a gradient of every parameter, those of the vision tower all zero."""
    model, options, seen = tiny_model(folder), {"batch": 4, "micro_batch": 1}, 0
    for plain, filled in zip(load(**options), load(filler_image=True, **options), strict=True):
        assert filled.images == plain.images and filled.loss_tokens == plain.loss_tokens and filled.step_loss_tokens == plain.step_loss_tokens
        if plain.images or seen == 3:
            continue
        seen, losses, gradients = seen + 1, [], []
        for batch in (plain, filled):
            loss = model(**batch).loss
            loss.backward()
            losses.append(loss.item())
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
            model.zero_grad()
        assert losses[1] == pytest.approx(losses[0], rel=1e-6)
        for name, gradient in gradients[1].items():
            if gradients[0][name] is None:
                assert ".visual." in name and not gradient.any(), name
            else:
                assert torch.allclose(gradient, gradients[0][name], atol=1e-6), name
        assert any(gradient is None for gradient in gradients[0].values())
    assert seen == 3


@pytest.mark.parametrize("options", [{"layout": "flat"}, {"layout": "packed", "row_tokens": 1024, "batch": 2}], ids=lambda options: options["layout"])
def test_samples_of_a_row_have_the_losses_they_have_alone(load, folder, options):
    """The loss of rows is the mean over the trained tokens of their samples, each by itself."""
    model = tiny_model(folder).eval()
    batch = next(load(**options))
    row_of = (lambda sample: 0) if options["layout"] == "flat" else (lambda sample: sample.row)
    samples = sorted(batch.samples, key=lambda sample: (row_of(sample), sample.offset))
    total = trained = patches = pictures = 0
    with torch.no_grad():
        joined = model(**batch).loss.item()
        for sample in samples:
            row, places = slice(row_of(sample), row_of(sample) + 1), slice(sample.offset, sample.offset + sample.tokens)
            alone = {name: batch[name][row, places] for name in ("input_ids", "labels", "mm_token_type_ids")}
            alone["position_ids"] = batch["position_ids"][1:, row, places]
            first, first_patch = pictures, patches
            while patches < first_patch + 4 * sample.visual_tokens:
                patches += int(batch["image_grid_thw"][pictures].prod())
                pictures += 1
            if pictures > first:
                alone |= {"image_grid_thw": batch["image_grid_thw"][first:pictures], "pixel_values": batch["pixel_values"][first_patch:patches]}
            tokens = int((alone["labels"][:, 1:] != -100).sum())
            total, trained = total + model(**alone).loss.item() * tokens, trained + tokens
    assert pictures == batch.images and len(samples) > 3 and joined == pytest.approx(total / trained, rel=1e-5)
