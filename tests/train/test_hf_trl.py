"""TRL's SFTTrainer on Stoker, without a data set or a network."""
import pytest
from hf_fixtures import package, sample  # noqa: F401

trl = pytest.importorskip("trl")
from transformers import AutoTokenizer  # noqa: E402

import stoker.hf  # noqa: E402
from hf_run import row_digests, tiny_model  # noqa: E402


class SFTTrainer(stoker.hf.TrainerMixin, trl.SFTTrainer):
    def training_step(self, model, inputs, *more):
        self.rows = [*getattr(self, "rows", []), *row_digests(inputs)]
        return super().training_step(model, inputs, *more)


def arguments(folder, **more):
    return trl.SFTConfig(**{"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "logging_steps": 1,
                   "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-3, "save_steps": 2, "max_steps": 3, **more})


@pytest.fixture
def trainer(sample, tmp_path):
    made = []

    def make(config=sample, **more):
        made.append(SFTTrainer(model=tiny_model(sample), args=arguments(tmp_path, **more), stoker=config,
                               processing_class=AutoTokenizer.from_pretrained(sample.parent / "model")))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_it_trains_resumes_and_evaluates(trainer, tmp_path):
    whole = trainer(max_length=2048, per_device_eval_batch_size=3)
    whole.train()
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert len(losses) == 3 and all(4 < loss < 9 for loss in losses) and len(whole.rows) == 12
    assert 4 < whole.evaluate()["eval_loss"] < 9
    resumed = trainer(max_length=2048)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.rows == whole.rows[8:]
    assert [entry["loss"] for entry in resumed.state.log_history if "loss" in entry][-1] == losses[-1]


def test_max_length_is_the_longest_sample(trainer, package, sample):
    made = trainer(max_length=120, max_steps=-1, num_train_epochs=1)
    lengths = [row.tokens for batch in made.get_train_dataloader() for row in batch.samples]
    wanted = package.plan(sample, batch=4, max_tokens=120, **{"eval.batch": 4})
    assert max(lengths) <= 120 and made.args.max_steps == wanted["steps"] < 12


def test_max_length_of_the_configuration_is_refused_if_it_is_another(trainer, sample, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(sample.read_text() + "max_tokens: 512\n")
    with pytest.raises(ValueError, match=r"max_tokens is 512 in .*other.yaml, .* 1024 by TrainingArguments \(max_length\)"):
        trainer(other)
    other.write_text(sample.read_text() + "layout: packed\nrow_tokens: 4096\n")
    with pytest.raises(ValueError, match=r"row_tokens is 4096 in .*other.yaml, .* 1024 by TrainingArguments \(max_length\)"):
        trainer(other)


def test_packing_is_not_done_twice(trainer):
    for name in ("packing", "padding_free"):
        with pytest.raises(ValueError, match=f"{name} is done by Stoker"):
            trainer(**{name: True, "max_length": None})
