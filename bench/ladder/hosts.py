"""Hosts of one's own on one machine: network namespaces on a bridge, each with one card of a given rate, and Ray nodes in them.

    with Hosts(["head", "node1", "store"], {"head": 150, "node1": 150}) as hosts:
        hosts.start("node1", [sys.executable, "-c", "..."])
        hosts.carried()                       # bytes in and out by host, from the counters of the cards

Only the network is split: files, memory and processors are the machine's.  Root, and iproute2.  All that was started ends with the block, and what
an earlier block could not end (kill -9) with the next one.
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

BRIDGE, CARD, SUBNET, RAY_PORT = "stkladder", "stkl", "10.78.5", 6379
BURST_KB, QUEUE_MS = 256, 50  # of a card's token bucket
TEMP = pathlib.Path("/tmp/stkladder")  # short: Ray's sockets lie below it


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=not check, text=True).stdout


class Hosts:
    """names: of the hosts.  mbit: the rate of a host's card in either direction; without one it has none."""

    def __init__(self, names, mbit):
        self.names, self._mbit = names, mbit
        self._children = []

    def __enter__(self):
        if os.geteuid() != 0 or not shutil.which("tc"):
            raise SystemExit("network namespaces need root, and `ip` and `tc` (Debian: iproute2)")
        self._end()
        try:
            ip("link", "add", BRIDGE, "type", "bridge")
            ip("addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)  # whoever measures
            ip("link", "set", BRIDGE, "up")
            for i, name in enumerate(self.names):
                self._add(i, name)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *raised):
        self._end()

    def _add(self, i, name):
        space, outer = self._space(name), f"{CARD}{i}"
        ip("netns", "add", space)
        ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", outer, "master", BRIDGE, "up")
        ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        if name in self._mbit:  # what leaves the host at its own end, what enters it at the bridge's
            bucket = ["root", "tbf", "rate", f"{self._mbit[name]}mbit", "burst", f"{BURST_KB}kb", "latency", f"{QUEUE_MS}ms"]
            subprocess.run(["ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "eth0", *bucket], check=True)
            subprocess.run(["tc", "qdisc", "add", "dev", outer, *bucket], check=True)

    def _end(self):
        for name in self.names:
            for pid in self.processes(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "del", self._space(name), check=False)
        for child in self._children:
            child.wait()
        for i in range(len(self.names)):
            ip("link", "del", f"{CARD}{i}", check=False)
        ip("link", "del", BRIDGE, check=False)
        shutil.rmtree(TEMP, ignore_errors=True)

    @staticmethod
    def _space(name):
        return f"stkladder-{name}"

    def address(self, name):
        return f"{SUBNET}.{10 + self.names.index(name)}"

    def processes(self, name):
        return [int(pid) for pid in ip("netns", "pids", self._space(name), check=False).split()]

    def start(self, name, command, **more):
        """A process on a host."""
        child = subprocess.Popen(["ip", "netns", "exec", self._space(name), *map(str, command)], **more)
        self._children.append(child)
        return child

    def start_ray(self, program, name, cpus, store_mb, env, head=None):
        """A Ray node that is up; head: the host it joins."""
        where = ["--head", f"--port={RAY_PORT}", "--include-dashboard=false"] if head is None else [f"--address={self.address(head)}:{RAY_PORT}"]
        done = self.start(name, [program, "start", *where, f"--node-ip-address={self.address(name)}", f"--num-cpus={cpus}",
                                 f"--object-store-memory={store_mb << 20}", "--disable-usage-stats", f"--temp-dir={TEMP / name}"],
                          env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, _ = done.communicate(timeout=120)
        if done.returncode:
            raise SystemExit(f"ray start on {name}: {said[-2000:]}")

    def pull(self, name):
        """The cable of a host: packets vanish, and nobody is told."""
        ip("link", "set", f"{CARD}{self.names.index(name)}", "down")

    def carried(self):
        """{host: (bytes in, bytes out)} since the cards were made."""
        def count(i, way):  # the outer end sees the host from the other side
            return int(pathlib.Path(f"/sys/class/net/{CARD}{i}/statistics/{way}_bytes").read_text())
        return {name: (count(i, "tx"), count(i, "rx")) for i, name in enumerate(self.names)}

    def resident(self, names):
        """Bytes that the processes of hosts have in memory; what several share counts once (PSS)."""
        total = 0
        for pid in (pid for name in names for pid in self.processes(name)):
            with contextlib.suppress(OSError, StopIteration):
                lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total


def wait_until(what, seconds, words):
    """Ask again until it says something true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := what()):
            return found
        time.sleep(0.1)
    raise SystemExit(f"{words}: not in {seconds:g} s")
