#!/usr/bin/env python3
"""One process of a rung of the ladder: a rank, or the driver of all ranks.  run.py starts it on its host:

    rungs.py NAME ASKED        ASKED: what run.py asks for, as JSON

It says "ready", waits for a line, prints what each of its ranks saw, as JSON, and stays until its input ends.  A rank takes a batch, "trains" (sleeps), takes the next.

`serial`, `workers`, `driver` and `references` are written as people write them: requests, Pillow, transformers' processor, torch's DataLoader, Ray.
`stoker` is stoker.ray.Loader.
"""
import collections
import contextlib
import hashlib
import io
import json
import os
import pathlib
import queue
import random
import sys
import threading
import time
import types

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 2  # steps that trainers are ahead of, or batches that are ready
opened = []  # loaders, until the process ends: engines live as long as who created them holds them


class Trainer:
    """What a rank saw."""

    def __init__(self, step_s):
        self._step_s = step_s
        self.waits, self.counts = [], collections.Counter()
        self.began = self._free = time.monotonic()

    def begin(self):
        self.began = self._free = time.monotonic()

    def train(self, batch_bytes, completed, failed, retried, meanwhile=lambda: None):
        """A batch is here.  meanwhile: what belongs to no wait."""
        came = time.monotonic()
        self.waits.append(came - self._free)
        self.counts.update(bytes=batch_bytes, completed=completed, failed=failed, retried=retried)
        meanwhile()
        time.sleep(max(0.0, came + self._step_s - time.monotonic()))
        self._free = time.monotonic()

    def seen(self):
        return {"began": self.began, "ended": self._free, "waits": self.waits, "train_s": self._free - self.began - sum(self.waits), **self.counts}


def wait_for_the_word():
    print("ready", flush=True)
    sys.stdin.readline()


# --- Python as people write it ---

class Samples:
    """Samples by their place in a shuffled order."""

    def __init__(self, asked):
        import requests
        import torch
        sys.path.insert(0, str(HERE.parent))
        import talk
        torch.set_num_threads(1)
        self._url, self._chat_of = asked.url, talk.chat_of
        self._session = requests.Session()
        self._process = talk.processor_of(asked.model)
        self.retried = 0
        self._rows = [json.loads(line) for line in self.get(asked.manifest).splitlines()]
        random.Random(1).shuffle(self._rows)
        self._session = requests.Session()  # DataLoader's workers must not share connections

    def get(self, key):
        for _ in range(5):
            answer = self._session.get(f"{self._url}/b/{key}", timeout=10)
            if answer.ok:
                break
            self.retried += 1
        answer.raise_for_status()
        return answer.content

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, i):
        """Tensors; None: the picture cannot be read, and the sample is left out."""
        from PIL import Image
        row, before = self._rows[i], self.retried
        data = self.get(row["image"])
        try:
            image = Image.open(io.BytesIO(data)).convert("RGB")
        except OSError:
            return None
        return {**self._process(self._chat_of(row), image), "retried": self.retried > before}


def collate(items):
    import torch
    good = [item for item in items if item is not None]
    return {"input_ids": torch.nn.utils.rnn.pad_sequence([item["input_ids"][0] for item in good], batch_first=True),
            "pixel_values": torch.cat([item["pixel_values"] for item in good]), "image_grid_thw": torch.cat([item["image_grid_thw"] for item in good]),
            "failed": len(items) - len(good), "retried": sum(item["retried"] for item in good)}


def train_on(trainer, batch):
    size = sum(value.nbytes for value in batch.values() if hasattr(value, "nbytes"))
    trainer.train(size, len(batch["input_ids"]), batch["failed"], batch["retried"])


def places(asked, rank):
    """Of a rank's samples, batch by batch."""
    for step in range(asked.steps):
        first = (step * asked.world + rank) * asked.rows
        yield list(range(first, first + asked.rows))


def serial(asked):
    samples, trainer = Samples(asked), Trainer(asked.step_s)
    wait_for_the_word()
    trainer.begin()
    for indices in places(asked, asked.rank):
        train_on(trainer, collate([samples[i] for i in indices]))
    return [trainer.seen()]


def workers(asked):
    from torch.utils.data import DataLoader
    samples, trainer = Samples(asked), Trainer(asked.step_s)
    loader = DataLoader(samples, batch_sampler=list(places(asked, asked.rank)), num_workers=asked.makers, collate_fn=collate)
    wait_for_the_word()
    trainer.begin()
    for batch in loader:
        train_on(trainer, batch)
    return [trainer.seen()]


class Maker:
    """An actor that makes batches."""

    def __init__(self, asked):
        self._samples = Samples(types.SimpleNamespace(**asked))

    def ready(self):
        return True

    def make(self, indices):
        return collate([self._samples[i] for i in indices])


class Rank:
    """An actor that trains."""

    def __init__(self, step_s):
        self._trainer = Trainer(step_s)

    def begin(self):
        self._trainer.begin()

    def train(self, batch):
        train_on(self._trainer, batch)

    def seen(self):
        return self._trainer.seen()


def drive(asked, holds):
    """A driver that has batches made in the background, and hands them to the ranks: the tensors (holds), or references to them."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    join(ray, asked)
    node = {n["NodeManagerAddress"]: n["NodeID"] for n in ray.nodes() if n["Alive"]}
    makers = [ray.remote(num_cpus=1)(Maker).remote(vars(asked)) for _ in range(asked.makers * asked.world)]
    ranks = [ray.remote(num_cpus=0)(Rank).options(scheduling_strategy=NodeAffinitySchedulingStrategy(node[address], soft=False)).remote(asked.step_s)
             for address in asked.rank_hosts]
    ray.get([maker.ready.remote() for maker in makers], timeout=120)
    wait_for_the_word()
    ray.get([rank.begin.remote() for rank in ranks], timeout=60)
    made = queue.Queue(WINDOW * asked.world)

    def prefetch():
        calls = collections.deque()
        each_step = zip(*(places(asked, rank) for rank in range(asked.world)))
        for i, indices in enumerate(indices for step in each_step for indices in step):
            calls.append(makers[i % len(makers)].make.remote(indices))
            if len(calls) == len(makers):
                made.put(ray.get(calls.popleft()) if holds else calls.popleft())
        for call in calls:
            made.put(ray.get(call) if holds else call)

    threading.Thread(target=prefetch, daemon=True).start()
    steps = collections.deque()
    for _ in range(asked.steps):
        steps.append([rank.train.remote(made.get(timeout=120)) for rank in ranks])
        if len(steps) == WINDOW:
            ray.get(steps.popleft(), timeout=120)
    for step in steps:
        ray.get(step, timeout=120)
    return ray.get([rank.seen.remote() for rank in ranks], timeout=60)


def driver(asked):
    return drive(asked, holds=True)


def references(asked):
    return drive(asked, holds=False)


def join(ray, asked):
    ray.init(address=asked.cluster, namespace="stoker", _node_ip_address=asked.host, log_to_driver=False, logging_level="ERROR")


# --- Stoker ---

def metrics_when(loader, so):
    """The loader's metrics, once its engines have answered and they are so."""
    from stoker import WaitError
    told = {}
    for _ in range(60):
        with contextlib.suppress(WaitError):  # no engine has answered in time
            if so(told := loader.metrics()):
                return told
        time.sleep(0.5)
    raise TimeoutError(f"the engines have not come to where they should be: {told}")


def stoker(asked):
    import numpy as np
    import ray
    import stoker.ray
    join(ray, asked)
    trainer, digest = Trainer(asked.step_s), hashlib.sha256()
    where = {"placement": "nodes", "nodes": asked.packed_on} if asked.placement == "packed" else {"placement": asked.placement}
    with stoker.ray.Loader(asked.config, asked.rank, asked.world, run=asked.run, workers=asked.threads, num_cpus=1,
                           node_ranks=range(asked.ranks_here), **where) as loader:
        opened.append(loader)
        if asked.rank == 0:  # every engine has opened its data: the start is not what is measured, on no rung
            metrics_when(loader, lambda told: all(engine["made"] for engine in told["ray"]["engines"].values()))
        wait_for_the_word()
        trainer.begin()
        for batch in loader:
            size = sum(view.nbytes for view in batch.values())
            if asked.copies:  # as Ray's gets of bytes, and of pickled tensors, do
                batch_copied = {name: np.array(view) for name, view in batch.items()}
                del batch_copied
            masked = sum(sample.masked for sample in batch.samples)
            trainer.train(size, sum(not sample.filler for sample in batch.samples) - masked, masked, 0, lambda: digest.update(batch.digest()))
        seen = trainer.seen() | {"digest": digest.hexdigest()}
        if asked.rank == 0:  # of all engines
            seen["told"] = metrics_when(loader, bool)
            seen["retried"] = seen["told"]["store"]["retries"]
    return [seen]


def main():
    name, asked = sys.argv[1], types.SimpleNamespace(**json.loads(sys.argv[2]))
    seen = {"serial": serial, "workers": workers, "driver": driver, "references": references, "stoker": stoker}[name](asked)
    print(json.dumps(seen), flush=True)
    sys.stdin.readline()  # engines of a rank that ends would end with it
    os._exit(0)  # Ray's and DataLoader's ends are not what is measured


if __name__ == "__main__":
    main()
