"""A node's cable is pulled while a rank reads from it: how long the rank waits, and that its stream stays what it is.

    sudo .venv-train/bin/python bench/ladder/cable.py --build build [--late 5]

No reset comes then, and packets vanish: Ray itself takes over a minute to find out.  A rank on one host reads from engines on two others, and
loses one of these after some steps.  Root; the hosts are those of the ladder.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import hosts as own_hosts
from run import HERE, environment

CPUS, STORE_MB, BEFORE, STEPS = 2, 150, 10, 60
OPTIONS = {"batch": 2, "steps": STEPS, "epochs": 100, "memory": "256MiB", "workers": 1, "prefetch": 1}
CONFIG = HERE.parent.parent / "examples" / "sample" / "stoker.yaml"


def read(asked):
    """The rank: digests of its batches, and its waits."""
    import ray
    import stoker.ray
    ray.init(address=asked["cluster"], namespace="stoker", _node_ip_address=asked["host"], log_to_driver=False, logging_level="ERROR")
    digests, waits = [], []
    with stoker.ray.Loader(CONFIG, run="cable", placement="nodes", nodes=asked["nodes"], late=asked["late"], **OPTIONS) as loader:
        for _ in range(STEPS):
            if len(digests) == BEFORE:
                print("pull", flush=True)
                sys.stdin.readline()
            began = time.perf_counter()
            batch = next(loader)
            waits.append(time.perf_counter() - began)
            digests.append(batch.digest().hex())
            time.sleep(0.1)
        print(json.dumps([digests, waits[BEFORE:], loader._reader.counts["asked_again"]]), flush=True)
        os._exit(0)  # Ray's own end waits for the host that is cut off


def local():
    import stoker
    with stoker.Loader(CONFIG, engine="inprocess", **OPTIONS) as loader:
        return [batch.digest().hex() for batch in loader]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--late", type=float, default=5.0, help="seconds after which a rank asks another engine")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read(json.loads(options.read))
    env = environment(options.build.resolve())
    sys.path.insert(0, env["PYTHONPATH"])
    names = ["head", "trainer", "lost", "kept"]
    with own_hosts.Hosts(names, {}) as hosts:
        program = pathlib.Path(sys.executable).parent / "ray"
        hosts.start_ray(program, "head", 0, STORE_MB, env)
        for name in names[1:]:
            hosts.start_ray(program, name, CPUS, STORE_MB, env, head="head")
        asked = {"cluster": f"{hosts.address('head')}:{own_hosts.RAY_PORT}", "host": hosts.address("trainer"), "late": options.late,
                 "nodes": [hosts.address("lost"), hosts.address("kept")]}
        rank = hosts.start("trainer", [sys.executable, __file__, "--read", json.dumps(asked)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if rank.stdout.readline() != "pull\n":
            raise SystemExit("the rank did not begin")
        hosts.pull("lost")
        rank.stdin.write("\n"), rank.stdin.flush()
        said = next((line for line in rank.stdout if line.startswith("[[")), "")  # Ray speaks between
    if not said:
        raise SystemExit("the rank ended before its stream did")
    digests, waits, again = json.loads(said)
    if digests != local():
        raise SystemExit("the stream has changed")
    if not again:
        raise SystemExit("no call was asked again: no cable was pulled")
    print(f"late={options.late:g}: {len(digests)} micro-batches, the same as on one machine; after the cable was pulled waits of {max(waits):.1f} s at most and {sum(waits):.1f} s in all, "
          f"{again} calls asked again")


if __name__ == "__main__":
    main()
