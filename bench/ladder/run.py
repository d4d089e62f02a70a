#!/usr/bin/env python3
"""The ladder of the talk, on network namespaces with a card each: one change at a time, at 2 ranks and at 8.

    sudo .venv-train/bin/python bench/ladder/run.py --build build [--rungs c,e] [--steps 40]

`make bench-cluster` makes what it needs.  README.md beside it tells what the rungs are, and holds the table of the last run.

Four nodes with ranks, a head with the driver, a store whose first byte is 30 ms late and which refuses one request in 200; the cards of nodes and
head carry --mbit each way, the store's what it can.  What is asserted: which bytes each card carried, that the samples are the same, and that Stoker's
batches are the same bytes wherever they are made.  Rates are only reported.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import hosts as own_hosts  # noqa: E402
import talk  # noqa: E402

NODES = ["node1", "node2", "node3", "node4"]
SCALE = {"small": 2, "large": 8}  # ranks
PICTURE, DAMAGED = (224, 224), 4  # pixels; of talk.PICTURES
THROTTLED = 0.005
NODE_CPUS, STORE_MB = 4, 400
LIMIT_S = 300  # of a rung
GET_PRICE = 0.4e-6  # of one request


class Rung(NamedTuple):
    letter: str
    what: str
    scale: str
    name: str               # in rungs.py
    placement: str = ""     # Stoker's engines
    copies: bool = False    # gets copy


LADDER = [
    Rung("a", "serial in the trainer", "small", "serial"),
    Rung("b", "parallel workers", "small", "workers"),
    Rung("c", "prefetch through a driver that holds the tensors", "small", "driver"),
    Rung("c'", "the same driver, with references", "small", "references"),
    Rung("d", "Stoker, by reference: packed, gets copy", "small", "stoker", "packed", True),
    Rung("d", "packed, zero-copy gets", "small", "stoker", "packed"),
    Rung("d", "spread, gets copy", "small", "stoker", "spread", True),
    Rung("d", "spread, zero-copy gets", "small", "stoker", "spread"),
    Rung("e", "packed, gets copy", "large", "stoker", "packed", True),
    Rung("f", "packed, zero-copy gets", "large", "stoker", "packed"),
    Rung("f", "spread, gets copy", "large", "stoker", "spread", True),
    Rung("f", "spread, zero-copy gets", "large", "stoker", "spread"),
    Rung("g", "an engine on every rank's node (placement: local), zero-copy gets", "large", "stoker", "local"),
]


# --- one rung ---

class Bench:
    """The hosts, and what all rungs share."""

    def __init__(self, options, work, model, hosts, url):
        self.options, self.work, self.model, self.hosts, self.url = options, work, model, hosts, url
        self.env = environment(options.build)

    def config(self, scale):
        """Stoker's configuration of a scale, and its manifest in the store."""
        path = self.work / f"{scale}.yaml"
        path.write_text(f"model: {self.model}\ndata:\n  - path: s3://b/{scale}.jsonl\n    media_root: s3://b/\nindex_dir: {self.work / 'index'}\n"
                        f"endpoint: {self.url}\nbatch: {SCALE[scale] * self.options.rows}\nseed: 1\nerrors:\n  masked: 0.1\n")
        return path

    def ask(self, rung):
        """What its processes are asked: {host: [asked, ...]}."""
        world = SCALE[rung.scale]
        rank_hosts = [NODES[rank * len(NODES) // world if world > len(NODES) else rank] for rank in range(world)]
        common = {"url": self.url, "manifest": f"{rung.scale}.jsonl", "model": str(self.model), "config": str(self.config(rung.scale)), "world": world,
                  "rows": self.options.rows, "steps": self.options.steps, "step_s": self.options.step_ms / 1e3, "makers": 2,
                  "run": f"{rung.name}-{time.monotonic_ns()}", "cluster": f"{self.hosts.address('head')}:{own_hosts.RAY_PORT}",
                  "placement": rung.placement, "copies": rung.copies, "packed_on": [self.hosts.address(NODES[0])],
                  "threads": NODE_CPUS if rung.placement == "packed" else 1, "rank_hosts": [self.hosts.address(host) for host in rank_hosts]}
        if rung.name in ("driver", "references"):
            return [("head", common | {"host": self.hosts.address("head")})]
        return [(host, common | {"rank": rank, "host": self.hosts.address(host), "ranks_here": rank_hosts.count(host)})
                for rank, host in enumerate(rank_hosts)]

    def climb(self, rung):
        """What came of it."""
        with open(self.work / f"rung-{LADDER.index(rung)}.log", "w+") as log:
            counts(self.url)
            before, idle = self.hosts.carried(), self.hosts.resident(["head", *NODES])
            memory = Peak(lambda: self.hosts.resident(["head", *NODES]))
            children = [self.hosts.start(host, [sys.executable, HERE / "rungs.py", rung.name, json.dumps(asked)], env=self.env, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) for host, asked in self.ask(rung)]
            watchdog = threading.Timer(LIMIT_S, lambda: [child.kill() for child in children])
            watchdog.start()
            try:
                lines = [child.stdout.readline() for child in children]
                for child in children:
                    with contextlib.suppress(BrokenPipeError):
                        child.stdin.write("go\n"), child.stdin.flush()
                lines += [child.stdout.readline() for child in children]
                if not all(lines):
                    log.seek(0)
                    raise SystemExit(f"rung {rung.letter} ({rung.what}) failed or took more than {LIMIT_S} s:\n{log.read()[-6000:]}")
            finally:
                watchdog.cancel()
                peak = memory.end()
                for child in children:
                    with contextlib.suppress(BrokenPipeError):
                        child.stdin.close()
            after, stored = self.hosts.carried(), counts(self.url)
            for child in children:
                child.wait(30)
        ranks = [rank for line in lines[len(children):] for rank in json.loads(line)]
        return result(rung, ranks, {host: tuple(b - a for a, b in zip(before[host], after[host])) for host in before}, stored, peak - idle, self.options)


class Peak:
    """The most of a figure until the end."""

    def __init__(self, figure):
        self._figure, self._most, self._over = figure, 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._over.wait(1.0):
            self._most = max(self._most, self._figure())

    def end(self):
        self._over.set()
        self._thread.join()
        return self._most


def counts(url):
    """What the store was asked since the last time."""
    return json.loads(urllib.request.urlopen(f"{url}/_counts", timeout=10).read())


def result(rung, ranks, cards, stored, memory, options):
    wall = max(rank["ended"] for rank in ranks) - min(rank["began"] for rank in ranks)
    wait, train = (sum(rank[key] for rank in ranks) for key in ("wait_s", "train_s")) if "wait_s" in ranks[0] else (
        sum(sum(rank["waits"]) for rank in ranks), sum(rank["train_s"] for rank in ranks))
    later = [w for rank in ranks for w in rank["waits"][1:]]
    total = {key: sum(rank.get(key, 0) for rank in ranks) for key in ("completed", "failed", "retried", "bytes")}
    price = len(ranks) * wall / 3600 * options.rank_hour + stored["gets"] * GET_PRICE
    return total | {"rung": rung, "ranks": len(ranks), "wall_s": wall, "samples_per_s": total["completed"] / wall, "busy": train / (train + wait),
                    "latency_factor": wait / (train + wait), "wait_ms": 1e3 * sum(later) / len(later), "longest_ms": 1e3 * max(later),
                    "first_ms": 1e3 * max(rank["waits"][0] for rank in ranks), "memory_mb": memory / 2**20, "gets": stored["gets"],
                    "store_bytes": stored["bytes"], "cards": cards, "per_million": 1e6 * price / total["completed"],
                    "rank_bytes": [rank["bytes"] for rank in ranks], "digests": [rank.get("digest") for rank in ranks],
                    "told": ranks[0].get("told")}


# --- what has to be so ---

def check(done):
    """Bytes of each card, and the same samples on all rungs of a scale."""
    for r in done:
        rung, cards, payload = r["rung"], r["cards"], r["bytes"]
        elsewhere = payload - (r["rank_bytes"][0] + (r["rank_bytes"][1] if r["ranks"] > len(NODES) else 0))  # of ranks that are not on node1
        head_in, head_out = cards["head"]
        assert cards["store"][1] > r["store_bytes"], "the store's card carries what it sent"
        if rung.name == "driver":
            assert head_in > 0.95 * payload and head_out > 0.95 * payload, f"{rung.what}: every tensor goes in and out at the driver"
        else:
            assert head_in + head_out < 0.05 * payload + 8e6, f"{rung.what}: no tensor goes through the driver, {head_in + head_out} bytes"
        node1_out, others_out = cards["node1"][1], [cards[node][1] for node in NODES[1:]]
        if rung.placement == "packed":
            assert elsewhere < node1_out < 1.2 * elsewhere + 8e6, f"{rung.what}: batches of ranks elsewhere leave by one card"
            assert max(others_out) < 0.1 * elsewhere + 8e6
        if rung.placement == "spread":
            assert max(node1_out, *others_out) < 0.35 * payload + 8e6, f"{rung.what}: no card carries more than its share"
        if rung.placement == "local":
            assert sum(others_out) + node1_out < 0.2 * payload + 8e6, f"{rung.what}: no batch crosses a card"
    for scale in SCALE:
        here = [r for r in done if r["rung"].scale == scale]
        assert len({(r["completed"], r["failed"]) for r in here}) <= 1, f"{scale}: all rungs complete and fail the same samples"
        assert len({tuple(r["digests"]) for r in here if r["rung"].name == "stoker"}) <= 1, f"{scale}: Stoker's batches are the same bytes"


# --- the table ---

def megabytes(count):
    return f"{count / 1e6:.0f}"


def print_table(done):
    print("| | rung | ranks | samples/s | busy | latency factor | wait ms | longest | first | memory MB | failed | retried | GETs "
          "| store out MB | driver in / out | most in, a node | most out | per million |")
    print("|---|---|" + "--:|" * 16)
    for r in done:
        cards = r["cards"]
        print(f"| {r['rung'].letter} | {r['rung'].what} | {r['ranks']} | {r['samples_per_s']:.1f} | {100 * r['busy']:.1f} % | {100 * r['latency_factor']:.1f} % "
              f"| {r['wait_ms']:.1f} | {r['longest_ms']:.0f} | {r['first_ms']:.0f} | {r['memory_mb']:.0f} | {r['failed']} | {r['retried']} | {r['gets']} "
              f"| {megabytes(cards['store'][1])} | {megabytes(cards['head'][0])} / {megabytes(cards['head'][1])} "
              f"| {megabytes(max(cards[n][0] for n in NODES))} | {megabytes(max(cards[n][1] for n in NODES))} | {r['per_million']:.2f} |")
    cells = {(r["rung"].scale, r["rung"].placement, r["rung"].copies): r["samples_per_s"] for r in done}
    ways = [(placement, copies) for placement in ("packed", "spread") for copies in (True, False)]
    if not all((scale, *way) in cells for scale in SCALE for way in ways):
        return
    print("\n| samples/s | packed, copies | packed, zero-copy | spread, copies | spread, zero-copy | both against neither |\n|---|--:|--:|--:|--:|--:|")
    for scale, world in SCALE.items():
        row = [cells[scale, *way] for way in ways]
        print(f"| {world} ranks | " + " | ".join(f"{rate:.1f}" for rate in row) + f" | {100 * (row[3] / row[0] - 1):+.0f} % |")


def environment(build):
    return os.environ | talk.KEYS | {
        "PYTHONPATH": str(build / "python"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_memory_monitor_refresh_ms": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def make_data(options, work):
    """The pictures, and a manifest for each scale: every sample once."""
    samples = {scale: world * options.rows * options.steps for scale, world in SCALE.items()}
    mean = talk.make_data(options.build / "bench-set", work / "data", samples["large"], PICTURE, DAMAGED)
    lines = (work / "data" / "train.jsonl").read_text().splitlines(True)
    for scale, count in samples.items():
        (work / "data" / f"{scale}.jsonl").write_text("".join(lines[:count]))
    return mean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rungs", help="letters of those to climb, with commas between; default: all")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--step-ms", type=int, default=500, help="what a training step takes")
    parser.add_argument("--rows", type=int, default=8, help="samples of a rank and step")
    parser.add_argument("--mbit", type=float, default=100, help="of the card of a node, each way")
    parser.add_argument("--rank-hour", type=float, default=3.0, help="price of a rank's GPU for an hour")
    options = parser.parse_args()
    options.build = options.build.resolve()
    letters = set(options.rungs.split(",")) if options.rungs else {rung.letter for rung in LADDER}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = options.build / "ladder"
    mean = make_data(options, work)
    ray = pathlib.Path(sys.executable).parent / "ray"
    done = []
    with own_hosts.Hosts(["head", *NODES, "store"], {name: options.mbit for name in ["head", *NODES]}) as hosts:
        address = hosts.address("store")
        store = hosts.start("store", [options.build / "bench" / "slow_store", f"folder={work / 'data'}", f"host={address}", f"ms={talk.DELAY_MS}",
                                      f"throttle={THROTTLED}"], stdout=subprocess.PIPE, text=True)
        bench = Bench(options, work, options.build / "reference-model", hosts, f"http://{address}:{store.stdout.readline().split()[1]}")
        for scale in SCALE:
            subprocess.run([options.build / "cli" / "stoker", "index", bench.config(scale)], env=bench.env, check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        hosts.start_ray(ray, "head", 0, STORE_MB, bench.env)
        for node in NODES:
            hosts.start_ray(ray, node, NODE_CPUS, STORE_MB, bench.env, head="head")
        for rung in LADDER:
            if rung.letter not in letters:
                continue
            done.append(bench.climb(rung) | {"load": os.getloadavg()[0]})
            (work / "result.json").write_text(json.dumps([r | {"rung": r["rung"]._asdict()} for r in done], indent=1))
            print(f"{rung.letter} {rung.scale}: {rung.what}: {done[-1]['samples_per_s']:.1f} samples/s", file=sys.stderr, flush=True)
    print(f"{options.rows} samples of {mean / 1e3:.0f} KB a rank and step, {options.steps} steps of {options.step_ms} ms, cards of {options.mbit:g} Mbit/s, first "
          f"byte after {talk.DELAY_MS} ms, {os.cpu_count()} cores for all, load average {min(r['load'] for r in done):.0f} to "
          f"{max(r['load'] for r in done):.0f}\n")
    print_table(done)
    check(done)


if __name__ == "__main__":
    main()
