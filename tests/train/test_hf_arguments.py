"""What TrainingArguments decide, what is refused, and what Trainer is given, in one process."""
import json

import pytest
from hf_fixtures import launch, package, sample  # noqa: F401

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import stoker.hf  # noqa: E402
from hf_run import tiny_model  # noqa: E402


class Trainer(stoker.hf.TrainerMixin, transformers.Trainer):
    pass


@pytest.fixture(scope="module")
def model(sample):
    return tiny_model(sample)


@pytest.fixture
def trainer(sample, model, tmp_path):
    """Make a trainer: ``trainer(config=..., stoker_options=..., **arguments)``."""
    made = []

    def make(config=sample, stoker_options=None, kind=Trainer, **arguments):
        args = transformers.TrainingArguments(**{"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "disable_tqdm": True,
                                                 "per_device_train_batch_size": 4, "save_strategy": "no", **arguments})
        made.append(kind(model=model, args=args, stoker=config, stoker_options=stoker_options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def changed(sample, tmp_path):
    """The sample's configuration with further options."""
    def write(**options):
        path = tmp_path / "changed.yaml"
        text = sample.read_text().replace("model: model", f"model: {sample.parent / 'model'}").replace("path: ", f"path: {sample.parent}/")
        path.write_text(text + "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items()))
        return path

    return write


# --- lengths ---

@pytest.mark.parametrize("arguments, steps, length", [
    ({"num_train_epochs": 2}, 23, 12), ({"num_train_epochs": 1}, 12, 12), ({"num_train_epochs": 1.5}, 18, 12), ({"max_steps": 5}, 5, 5),
    ({"num_train_epochs": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}, 23, 24)], ids=str)
def test_steps_are_the_plans(trainer, arguments, steps, length):
    made = trainer(**arguments)
    rows = made.get_train_dataloader()
    assert (made.args.max_steps, len(rows)) == (steps, length)
    assert made.set_initial_training_values(made.args, rows)[-1] == steps
    assert made.stoker.steps >= steps


def test_the_data_are_gone_through_in_trainers_epochs(trainer):
    made = trainer(num_train_epochs=2)
    rows = made.get_train_dataloader()
    first, second = list(rows), list(rows)
    assert [batch.step for batch in first] == list(range(12)) and [batch.step for batch in second] == list(range(12, 23))
    assert rows.state_after(12) == first[-1].state and rows.state_after(13) == second[0].state
    again = [batch.step for batch in made.get_train_dataloader()]
    assert again == list(range(12))


def test_each_evaluation_begins_at_the_beginning(trainer):
    made = trainer(per_device_eval_batch_size=2)
    first = made.evaluate()
    passes = [[sample.id for batch in made.get_eval_dataloader() for sample in batch.samples if not sample.filler] for _ in range(2)]
    assert passes[0] == passes[1] and len(passes[0]) == 6
    assert made.evaluate()["eval_loss"] == first["eval_loss"]


def test_evaluation_and_training_ask_one_engine(trainer):
    made = trainer(num_train_epochs=1, per_device_eval_batch_size=3, stoker_options={"workers": 1})
    rows = iter(made.get_train_dataloader())
    assert next(rows).step == 0 and len(list(made.get_eval_dataloader())) == 2 and next(rows).step == 1


def test_more_micro_batches_than_trainer_holds_are_kept(trainer):
    """Pixels that are views of the engine's memory, two steps of them."""
    made = trainer(num_train_epochs=1, per_device_train_batch_size=1, gradient_accumulation_steps=4, stoker_options={"pixels": "float32", "prefetch": 1})
    rows, held = iter(made.get_train_dataloader()), []
    for _ in range(8):
        held.append(next(rows))
    assert [(batch.step, batch.micro) for batch in held] == [(step, micro) for step in (0, 1) for micro in range(4)]


# --- what is refused ---

@pytest.mark.parametrize("stated, arguments, words", [
    ({"batch": 8}, {}, r"batch is 8 in .*changed.yaml, and 4 by TrainingArguments \(per_device_train_batch_size 4 x gradient_accumulation_steps 1 x 1 processes\)"),
    ({"batch": [[0, 4], [9, 8]]}, {}, r"batch is .* \(per_device_train_batch_size"),
    ({"micro_batch": 2}, {}, r"micro_batch is 2 .* 4 by TrainingArguments \(per_device_train_batch_size 4\)"),
    ({"epochs": 2}, {"num_train_epochs": 3}, r"epochs is 2 .* 3 by TrainingArguments \(num_train_epochs 3\)"),
    ({"steps": 9}, {"max_steps": 7}, r"steps is 9 .* 7 by TrainingArguments \(max_steps\)"),
    ({"steps": 9}, {}, "steps is 9 .* no max_steps")], ids=str)
def test_a_configuration_that_says_otherwise_is_refused_with_both_names(trainer, changed, stated, arguments, words):
    with pytest.raises(ValueError, match=words):
        trainer(changed(**stated), **arguments)


def test_an_evaluation_that_says_otherwise_is_refused(trainer, sample, changed):
    config = changed()
    config.write_text(config.read_text().replace("eval: {", "eval: {batch: 7, "))
    with pytest.raises(ValueError, match=r"batch is 7 in .*, and 2 by TrainingArguments \(per_device_eval_batch_size 2 x 1 processes\)"):
        trainer(config, per_device_eval_batch_size=2)
    config.write_text(config.read_text().partition("eval:")[0])
    with pytest.raises(ValueError, match="eval_strategy is 'steps', and .* no `eval`"):
        trainer(config, eval_strategy="steps")


def test_what_repeats_the_arguments_is_taken(trainer, changed):
    made = trainer(changed(batch=4, micro_batch="all", epochs=2, steps="auto"), num_train_epochs=2)
    assert len(made.get_train_dataloader()) == 12


def test_what_cannot_be_is_refused_in_words(trainer, sample, model, tmp_path):
    with pytest.raises(ValueError, match="auto_find_batch_size"):
        trainer(auto_find_batch_size=True)
    with pytest.raises(ValueError, match="args is missing"):
        Trainer(model=model, stoker=sample)
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="train_dataset and stoker"):
        Trainer(model=model, args=args, stoker=sample, train_dataset=[1])


def test_a_checkpoint_of_other_data_is_refused(trainer, tmp_path):
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(FileNotFoundError, match="stoker.state is missing"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
