"""A tiny Qwen3-VL takes the batches as they are, and learns from them what it learns from the reference's own pipeline."""
import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
pytest.importorskip("transformers")
from plain_pipeline import OPTIONS, Plain, tiny_model  # noqa: E402

LAYOUTS = [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}]


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


def test_the_losses_are_those_of_the_pipeline_that_people_have(load, config, folder):
    plain, taken = Plain(config), []

    def plain_batches():
        for batch in itertools.islice(load(**OPTIONS), 3):
            assert not any(sample.filler for sample in batch.samples)
            yield plain.collate([sample.line for sample in sorted(batch.samples, key=lambda sample: sample.row)])

    def batches():
        for batch in itertools.islice(load(**OPTIONS), 3):
            taken.append(batch.images)
            yield batch

    losses = train(tiny_model(folder), batches())
    assert losses == train(tiny_model(folder), plain_batches())
    assert len(set(losses)) == 3 and sum(taken) > 3
    assert losses != train(tiny_model(folder), itertools.islice(load(), 3))     # hf's resize is another one, and seen


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: options["layout"])
def test_each_layout_trains_under_the_defaults_of_transformers(load, folder, options):
    losses = train(tiny_model(folder), itertools.islice(load(**options), 3))
    assert all(5 < loss < 9 for loss in losses)       # about the logarithm of the vocabulary


@pytest.mark.parametrize("options", LAYOUTS[1:], ids=lambda options: options["layout"])
def test_samples_of_a_row_do_not_see_each_other(load, folder, options):
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


def test_a_sample_of_a_row_has_the_loss_it_has_alone(load, folder):
    """The loss of a row is the mean over the trained tokens of its samples, each by itself."""
    model = tiny_model(folder).eval()
    batch = next(load(layout="flat"))
    with torch.no_grad():
        joined = model(**batch).loss.item()
        total = trained = patches = pictures = 0
        for sample in batch.samples:
            places = slice(sample.offset, sample.offset + sample.tokens)
            alone = {name: batch[name][:, places] for name in ("input_ids", "labels", "mm_token_type_ids")}
            alone["position_ids"] = batch["position_ids"][1:, :, places]
            seen = 0
            while seen < sample.visual_tokens:
                size = int(batch["image_grid_thw"][pictures + alone.setdefault("count", 0)].prod())
                alone["count"] += 1
                seen += size // 4
            count = alone.pop("count", 0)
            if count:
                alone |= {"image_grid_thw": batch["image_grid_thw"][pictures:pictures + count], "pixel_values": batch["pixel_values"][patches:patches + 4 * seen]}
            pictures, patches = pictures + count, patches + 4 * seen
            tokens = int((alone["labels"][:, 1:] != -100).sum())
            total, trained = total + model(**alone).loss.item() * tokens, trained + tokens
    assert pictures == batch.images and joined == pytest.approx(total / trained, rel=1e-5)
