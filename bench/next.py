"""What handing over a batch costs: microseconds of a ready `next`, and what an engine at full speed takes from a training loop beside it.

    make bench-next
    PYTHONPATH=build/python python bench/next.py [--rounds 5] [--batch 8]

`next`: Stoker's engine process beside a torch DataLoader with two workers that hands out equal tensors, made before; each is asked when its batch is
ready.  "read" is next and every byte of the pixels read once: memory that is new to the process is mapped then.

Beside: steps of a small network on one thread.  With an engine the loop takes whatever is ready before each step, so that the engine never rests; "cached" goes
through a list of batches.  All kinds take turns; figures are medians over the rounds, ratios over those of the same round.
"""
import argparse
import itertools
import pathlib
import statistics
import tempfile
import time

import torch

import stoker.torch

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "examples/sample/stoker.yaml"
READY_S = 0.03


class Made(torch.utils.data.Dataset):
    """Batches that are there."""

    def __init__(self, batches):
        self._batches = batches

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        return self._batches[at % len(self._batches)]


def us(nanoseconds):
    return statistics.median(nanoseconds) / 1e3


def read(batch):
    return int(batch["pixel_bytes"].view(torch.int64).sum()) if "pixel_bytes" in batch else 0


def ask(source, count):
    """(next, next and read) of ready batches, in microseconds."""
    asked, read_too = [], []
    for _ in range(count):
        time.sleep(READY_S)
        while isinstance(source, stoker.Loader) and not source.metrics()["ready"]:
            time.sleep(READY_S)
        began = time.perf_counter_ns()
        batch = next(source)
        given = time.perf_counter_ns()
        read(batch)
        asked.append(given - began)
        read_too.append(time.perf_counter_ns() - began)
    return us(asked), us(read_too)


class Training:
    """A network whose steps are of one size."""

    def __init__(self):
        torch.manual_seed(0)
        self._model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
        self._input = torch.randn(128, 256)

    def steps(self, count, take):
        """Microseconds a step, with what is taken before it."""
        began = time.perf_counter_ns()
        for _ in range(count):
            take()
            self._model(self._input).sum().backward()
        return (time.perf_counter_ns() - began) / count / 1e3


def drain(loader):
    """Take what is ready."""
    taken = 0
    try:
        while loader.next(0):
            taken += 1
    except TimeoutError:
        pass
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--count", type=int, default=40, help="batches asked for a round")
    parser.add_argument("--steps", type=int, default=300, help="steps of the network a round")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as index:
        options = {"index_dir": index, "batch": given.batch, "epochs": 1 << 14, "memory": "512MiB", "device": "cpu", "expand": False, "workers": 1}
        loader = stoker.torch.Loader(SAMPLE, **options)
        batches = [{name: value.clone() for name, value in batch.items()} for batch in itertools.islice(loader, 8)]
        size = statistics.mean(sum(value.nbytes for value in batch.values()) for batch in batches)
        print(f"{given.batch} rows, {size / 1e6:.1f} MB a batch")
        workers = iter(torch.utils.data.DataLoader(Made(batches), batch_size=None, num_workers=2))
        asked = {"stoker": [], "DataLoader": []}
        for _ in range(given.rounds):
            asked["stoker"].append(ask(loader, given.count))
            asked["DataLoader"].append(ask(workers, given.count))
        del workers
        loader.close()
        for what, at in (("next", 0), ("read", 1)):
            ours, theirs = ([round_[at] for round_ in asked[kind]] for kind in ("stoker", "DataLoader"))
            print(f"{what}: stoker {statistics.median(ours):.0f} us, DataLoader {statistics.median(theirs):.0f} us, ratio "
                  f"{statistics.median(theirs[i] / ours[i] for i in range(given.rounds)):.2f}")

        training, kinds = Training(), ("cached", "process", "inprocess")
        took, taken = {kind: [] for kind in kinds}, dict.fromkeys(kinds, 0)
        for _ in range(given.rounds):
            cached = itertools.cycle(batches)
            took["cached"].append(training.steps(given.steps, lambda: next(cached)))
            for kind in kinds[1:]:
                with stoker.torch.Loader(SAMPLE, engine=kind, **options) as loader:
                    next(loader)

                    def take(kind=kind, loader=loader):
                        taken[kind] += drain(loader)

                    took[kind].append(training.steps(given.steps, take))
        for kind in kinds[1:]:
            print(f"beside, engine {kind}: a step {statistics.median(took[kind]):.0f} us, cached {statistics.median(took['cached']):.0f} us, ratio "
                  f"{statistics.median(took[kind][i] / took['cached'][i] for i in range(given.rounds)):.3f}; {taken[kind]} batches meanwhile")


if __name__ == "__main__":
    main()
