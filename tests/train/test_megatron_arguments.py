"""stoker.megatron without Megatron: who reads with whom, what arguments and configuration may say, masks and bounds, and the files of states."""
import subprocess
import sys
import types

import pytest

from hf_fixtures import package, sample  # noqa: F401

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
from stoker import megatron  # noqa: E402


def test_it_imports_and_its_tools_run_without_megatron():
    code = "import sys; sys.modules['megatron'] = None; import runpy; sys.argv[1:] = ['copy-state', '--help']; runpy.run_module('stoker.megatron', run_name='__main__')"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "--ranks" in done.stdout, done.stderr


# --- who reads with whom ---

def places(monkeypatch, processes, run=None, launched=False, **more):
    """Where each of (machine, rank, loaders) stands."""
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    if launched:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    found = []
    for machine, rank, loaders in processes:
        monkeypatch.setattr(megatron.torch, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(megatron, "_gather", lambda value: [(*each, f"name-{number}") for number, each in enumerate(processes)])
        found.append(megatron.find_place(rank, 4, loaders, run, **more))
    return found


def test_siblings_on_a_machine_share_an_engine(monkeypatch):
    """Two machines of a data-parallel size of 4, a first and a last stage each, and tensor siblings that do not read."""
    processes = [(machine, rank, reads) for machine, ranks in (("a", (0, 1)), ("b", (2, 3))) for _ in ("first", "last") for rank in ranks for reads in (1, 0)]
    found = places(monkeypatch, processes)
    assert [place.readers for place in found] == [2, 0] * 8
    assert {(place.rank, place.node_ranks) for place in found} == {(0, (0, 1)), (1, (0, 1)), (2, (2, 3)), (3, (2, 3))}
    assert {place.run for place in found if place.readers} == {"name-0"}        # made up by one, and known to all
    assert {place.run for place in places(monkeypatch, processes, launched=True)} == {None}
    assert {place.run for place in places(monkeypatch, processes, run="mine")} == {"mine"}


def test_ranks_with_unlike_numbers_of_readers_have_engines_of_their_own(monkeypatch):
    """A pipeline that crosses machines at another place than the data-parallel ranks.  Engines of a cluster do not mind."""
    processes = [("a", 0, 1), ("a", 1, 1), ("a", 2, 1), ("a", 0, 1), ("b", 1, 1), ("b", 2, 1)]
    found = places(monkeypatch, processes, launched=True)
    assert [(place.readers, place.node_ranks, place.run) for place in found[:4]] == [
        (2, (0,), "name-0-0"), (1, (1,), "name-0-1"), (1, (2,), "name-0-2"), (2, (0,), "name-0-0")]
    assert [(place.readers, place.node_ranks) for place in found[4:]] == [(1, (1, 2)), (1, (1, 2))]
    assert [(place.readers, place.node_ranks, place.run) for place in places(monkeypatch, processes, by_machine=False)] == [
        *4 * [(2, (0, 1, 2), "name-0")], *2 * [(1, (1, 2), "name-0")]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunks", [None, 2])
def test_the_ends_of_the_pipeline_read_and_all_of_it_where_rows_are_packed(monkeypatch, packed, chunks):
    here = types.SimpleNamespace(tp=0, pp=0)
    ranks = types.ModuleType("megatron.core.parallel_state")
    ranks.get_tensor_model_parallel_rank = lambda: here.tp
    ranks.is_pipeline_first_stage = lambda ignore_virtual, vp_stage: here.pp == 0 and vp_stage in (None, 0)
    ranks.is_pipeline_last_stage = lambda ignore_virtual, vp_stage: here.pp == 2 and vp_stage in (None, 1)
    core = types.ModuleType("megatron.core")
    core.parallel_state = ranks
    monkeypatch.setitem(sys.modules, "megatron.core", core)
    found = {}
    for here.tp in range(2):
        for here.pp in range(3):
            for chunk in [None] if chunks is None else range(chunks):
                found[here.tp, here.pp, chunk] = megatron._reads(types.SimpleNamespace(), packed, chunk)
    first, last = (0, 0, None if chunks is None else 0), (0, 2, None if chunks is None else 1)
    assert {place for place, (reads, _) in found.items() if reads} == ({place for place in found if place[0] == 0} if packed else {first, last})
    assert {place for place, (_, pixels) in found.items() if pixels} == {first}


def test_who_fails_ends_all(monkeypatch):
    monkeypatch.setattr(megatron, "_gather", lambda value: [value, ("OSError: gone", None)])
    with pytest.raises(RuntimeError, match="process 1 could not open its data: OSError: gone"):
        megatron.together(lambda: None)
    with pytest.raises(KeyError):
        megatron.together(lambda: {}["own"])


# --- what is said, and by whom ---

@pytest.fixture
def config(tmp_path):
    path = tmp_path / "stoker.yaml"
    path.write_text("batch: 8\nlayout: packed\nepochs: 2\nindex_dir: here\neval: {batch: 2, index_dir: there}\n")
    return path


def test_keywords_are_for_both_splits_and_eval_has_its_own(config):
    said = megatron.read_stated(config, {"seed": 3, "index_dir": "now", "keep": 5, "eval.seed": 4, "limits": {"json_depth": 8}})
    assert said.train == {"batch": 8, "layout": "packed", "epochs": 2, "index_dir": "now", "seed": 3, "keep": 5, "limits": {"json_depth": 8}}
    assert said.evaluation == {"layout": "packed", "batch": 2, "index_dir": "there", "seed": 4, "keep": 5, "limits": {"json_depth": 8}}
    assert said.options == {"seed": 3, "index_dir": "now", "keep": 5, "limits": {"json_depth": 8}, "eval.seed": 4}
    assert megatron.read_stated({"batch": 4}, {}) == ({"batch": 4}, None, {})


def test_what_says_otherwise_is_refused_with_both_names(config):
    said = megatron.read_stated(config, {})
    rows = {"batch": megatron.Wanted(16, "--global-batch-size")}
    with pytest.raises(ValueError, match=r"batch is 8 in .*stoker.yaml, and 16 by --global-batch-size"):
        megatron.settle(config, said, rows, lambda of_evaluation: {})
    with pytest.raises(ValueError, match=r"batch is 2 in .*stoker.yaml, eval, and 16 by --global-batch-size"):
        megatron.settle(config, said, {}, lambda of_evaluation: rows)
    assert megatron.settle(config, said, {"batch": megatron.Wanted(8, "")}, lambda of_evaluation: {"batch": megatron.Wanted(2, "")}) == {
        "batch": 8, "eval.batch": 2}
    with pytest.raises(ValueError, match="targets is 'hf'"):
        shape = megatron.shape({}, megatron.Wanted(64, "--seq-length"), 1, {"padded": "plain"})
        megatron.settle(None, megatron.Stated({"targets": "hf"}, None, {}), shape, lambda of_evaluation: {})
    with pytest.raises(ValueError, match="eval has another layout"):
        megatron.settle(config, megatron.Stated({"layout": "packed"}, {"layout": "padded"}, {}), {}, lambda of_evaluation: {})


def test_packed_places_follow_context_and_sequence_parallelism():
    length = megatron.Wanted(64, "--seq-length")
    assert [megatron.row_multiple(*each) for each in ((1, 1, False), (2, 1, False), (1, 4, False), (1, 4, True), (2, 3, True))] == [1, 4, 1, 4, 12]
    wanted = megatron.shape({"layout": "packed"}, length, 4, {"packed": "mrope"})
    assert {name: value for name, (value, _) in wanted.items()} == {"targets": "shifted", "positions": "mrope", "row_tokens": 64, "segment_multiple": 4}
    assert megatron.shape({"layout": "packed", "segment_multiple": 8, "positions": "plain"}, length, 4, {"packed": "mrope"})["segment_multiple"].value == 8
    with pytest.raises(ValueError, match="segment_multiple is 6"):
        megatron.shape({"layout": "packed", "segment_multiple": 6}, length, 4, {"packed": "mrope"})
    with pytest.raises(ValueError, match="layout: flat"):
        megatron.shape({"layout": "flat"}, length, 1, {"padded": "plain", "packed": "plain"})


def test_a_step_follows_from_consumed_samples():
    pieces = [[0, 4], [2, 8], [5, 16]]
    assert [megatron.step_at(pieces, consumed) for consumed in (0, 4, 8, 16, 32, 48, 16 * 1000 + 32)] == [0, 1, 2, 3, 5, 6, 1005]
    for consumed in (1, 10, 40):
        with pytest.raises(ValueError, match=f"behind {consumed} samples .* 4 rows from step 0 on, then 8 rows from step 2 on"):
            megatron.step_at(pieces, consumed)
    with pytest.raises(ValueError, match="have 8 rows"):
        megatron.step_at([[0, 8]], 12)


@pytest.mark.parametrize("name, value, words", [("dataloader_type", "single", "--dataloader-type external"), ("full_validation", True, "--eval-iters"),
                                                ("multiple_validation_sets", True, "one `eval`"), ("hybrid_context_parallel", True, "not supported"),
                                                ("phase_transition_iterations", [3], "not supported"), ("gtp_weight_remat_size", 2, "not supported")])
def test_what_is_not_supported_is_refused_in_words(name, value, words):
    megatron._refuse_unfit(types.SimpleNamespace(dataloader_type="external"))
    with pytest.raises(ValueError, match=words):
        megatron._refuse_unfit(types.SimpleNamespace(**{"dataloader_type": "external", name: value}))


def test_keep_follows_from_what_the_trainer_holds():
    said = megatron.Stated({}, {}, {})
    assert megatron.keeping(said, 8, 4, 3, True) == {"keep": 8, "eval.keep": 3}
    assert megatron.keeping(said, 8, 0, 3, False) == {"keep": 3, "eval.keep": 2} and megatron.keeping(said, 1, 2, 3, False) == {"keep": 2, "eval.keep": 2}
    assert megatron.keeping(megatron.Stated({}, None, {}), 8, 0, 3, True) == {"keep": 8}
    assert megatron.keeping(megatron.Stated({"keep": 7}, {"keep": 7}, {}), 8, 4, 3, True) == {}


# --- tensors ---

def test_bounds_by_row_and_masks():
    lent = {"input_ids": torch.zeros(2, 8, dtype=torch.long), "cu_seqlens": torch.tensor([0, 2, 6, 9, 14], dtype=torch.int32),
            "cu_seqlens_padded": torch.tensor([0, 4, 8, 12, 16], dtype=torch.int32), "max_seqlen": torch.tensor(5, dtype=torch.int32)}
    made = megatron._bounds_by_row(lent)
    assert made["cu_seqlens"].tolist() == [[0, 4, 8], [0, 4, 8]] and made["max_seqlen"].tolist() == [4, 4] and "cu_seqlens_padded" not in made
    made = megatron._bounds_by_row({"input_ids": torch.zeros(2, 4), "cu_seqlens": torch.tensor([0, 1, 3, 4, 8]), "max_seqlen": torch.tensor(4)})
    assert made["cu_seqlens"].tolist() == [[0, 1, 3, 4], [0, 4, 4, 4]] and made["max_seqlen"].tolist() == [2, 4]
    assert made["cu_seqlens"].dtype == made["max_seqlen"].dtype == torch.int32
    mask = megatron.mask_of(torch.zeros(2, 4), made["cu_seqlens"])
    assert mask.shape == (2, 1, 4, 4) and mask.dtype == torch.bool and mask.is_contiguous()
    looks = [[[a >= b and (row == 1 or (a in (1, 2)) == (b in (1, 2)) and (a == 3) == (b == 3)) for b in range(4)] for a in range(4)] for row in range(2)]
    assert (~mask[:, 0]).tolist() == looks
    assert (~megatron.mask_of(torch.zeros(1, 3), None)[0, 0]).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


@pytest.mark.parametrize("layout, positions, masks", [("padded", "plain", True), ("padded", "mrope", False), ("packed", "plain", True), ("packed", "mrope", False)])
def test_fields_have_megatrons_names_and_shapes(package, sample, layout, positions, masks):
    rows = {"layout": "packed", "row_tokens": 640, "window": 64, "segment_multiple": 8} if layout == "packed" else {"pad_to": 640}
    options = {"batch": 4, "micro_batch": 2, "steps": 2, "targets": "shifted", "positions": positions, **rows}
    pictures = 0
    with megatron._Loader(sample, device="cpu", masks=masks, **options) as loader, package.Loader(sample, **options) as views:
        for batch, view in zip(loader, views, strict=True):
            wanted = {"tokens", "labels", "loss_mask", "position_ids"} | ({"attention_mask"} if masks else set())
            wanted |= {"cu_seqlens", "max_seqlen"} if layout == "packed" else set()
            assert set(batch) == wanted | ({"pixel_values", "image_grid_thw"} if view.images else set())
            kinds = {name: (str(value.dtype)[6:], list(value.shape)) for name, value in batch.items()}
            assert kinds["tokens"] == kinds["labels"] == ("int64", [2, 640]) and kinds["loss_mask"] == ("float32", [2, 640])
            assert kinds["position_ids"] == ("int64", [2, 640] if positions == "plain" else [3, 2, 640])
            assert (batch["tokens"].numpy() == view["input_ids"]).all() and (batch["position_ids"].numpy() == view["position_ids"]).all()
            if masks:
                assert kinds["attention_mask"] == ("bool", [2, 1, 640, 640])
            if layout == "packed":
                assert kinds["cu_seqlens"][0] == kinds["max_seqlen"][0] == "int32" and kinds["max_seqlen"][1] == [2]
                assert batch["cu_seqlens"][:, 0].tolist() == [0, 0] and batch["cu_seqlens"][:, -1].tolist() == [640, 640]
            pictures += view.images
    assert pictures > 4


# --- the files of states ---

def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"dataloader_state_dict": {"stoker": text}}, path)


def test_states_are_copied_in_the_last_checkpoint(tmp_path, capsys):
    for step in (9, 10):
        for rank in range(2):
            write(tmp_path / f"energon/iter_{step:07d}/train_dataloader_dprank{rank:03d}.pt", f"stoker-state 2\nstep {step}\n")
    assert megatron.main(["copy-state", str(tmp_path), "--ranks", "4"]) == 0
    made = [tmp_path / f"energon/iter_0000010/train_dataloader_dprank{rank:03d}.pt" for rank in (2, 3)]
    assert capsys.readouterr().out.split() == [str(path) for path in made] and len(list(tmp_path.rglob("*"))) == 1 + 2 + 4 + 2
    assert all(torch.load(path, weights_only=True)["dataloader_state_dict"]["stoker"].endswith("step 10\n") for path in made)
    assert megatron.copy_state(tmp_path, 4) == [] and megatron.copy_state(tmp_path, 1) == []


@pytest.mark.parametrize("texts, words", [([], "has no file"), (["step 1\n", "step 2\n"], "differs from"), (["step 1\nmicro 1\n"], "inside a step")])
def test_what_are_no_such_states_is_not_copied(tmp_path, capsys, texts, words):
    for rank, text in enumerate(texts):
        write(tmp_path / f"train_dataloader_dprank{rank:03d}.pt", text)
    assert megatron.main(["copy-state", str(tmp_path), "--ranks", "4"]) == 1
    assert words in capsys.readouterr().err and len(list(tmp_path.iterdir())) == len(texts)


def test_a_file_of_another_loader_is_refused(tmp_path, capsys):
    torch.save({"dataloader_state_dict": {"position": 3}}, tmp_path / "train_dataloader_dprank000.pt")
    assert megatron.main(["copy-state", str(tmp_path), "--ranks", "4"]) == 1
    assert "a state is what state_dict() gives" in capsys.readouterr().err
