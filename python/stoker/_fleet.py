"""The engines of a run on a Ray cluster: actors, where they are, and which of them makes what.

An engine makes any micro-batch of any rank, so which one does is only a matter of load: a function of the micro-batch's number and rank
(``Fleet.home``), and another one where that has gone or is late.  All of them compute the plan themselves; they share nothing and hold
no state.

Not here: calls and what comes back (stoker.ray).
"""
from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _core
from ._exceptions import CallError, Error, SetupError, Status, WaitError
from ._loader import name_command

NAMESPACE = "stoker"
CONCURRENT = 64      # calls that an engine has under way at once; the others queue
LOOK_S = 2.0         # how often an engine looks at its node's object store
REVIVE_S = 5.0       # how long an engine that has gone is left alone
DOUBTS_MAX = 16      # how many times as long as it was late one is left alone at most
POLL_S = 0.2         # while engines open
MADE_IN_S = 60.0     # one piece of the wait for a micro-batch in an engine
MIB = 1 << 20

Placement = Literal["local", "spread", "nodes"]
Pairs = list[tuple[str, str]]


class Setting(NamedTuple):
    """What all engines of a run are opened with."""

    file: str | bytes | None
    pairs: Pairs
    world: int


class Member(NamedTuple):
    """An engine: the name of its actor, and the node that it is bound to."""

    name: str
    node: str


# --- a node ---

@functools.lru_cache(maxsize=1)
def _raylet(node_id: str) -> tuple[str, int]:
    """Where this node's raylet is asked."""
    here = next(node for node in ray.nodes() if node["NodeID"] == node_id)
    return here["NodeManagerAddress"], here["NodeManagerPort"]


def store_figures() -> dict[str, int]:
    """Of this node's object store, in bytes: what it may hold and holds, and what it has put on disk (``ray memory`` shows the same).

    Empty where this release of Ray does not say, or grpcio is missing.
    """
    try:
        from ray._private.internal_api import node_stats
        stats = node_stats(*_raylet(ray.get_runtime_context().get_node_id()), include_memory_info=False).store_stats
        return {"capacity_bytes": int(stats.object_store_bytes_avail), "used_bytes": int(stats.object_store_bytes_used),
                "spilled_bytes": int(stats.spilled_bytes_total), "restored_bytes": int(stats.restored_bytes_total),
                "on_disk_bytes": int(stats.object_store_bytes_fallback), "objects": int(stats.num_local_objects)}
    except Exception:
        return {}


def put_on_disk(figures: dict[str, int]) -> int | None:
    """Bytes of objects that memory had no room for; None: not known."""
    return figures["spilled_bytes"] + figures["on_disk_bytes"] if figures else None


def stand_up() -> int:
    """Take back the niceness that Ray gives a worker (15), for this thread and those that it starts; what it is then.

    Without the right to, the raylet has to be started with ``RAY_worker_niceness=0``.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) > 0:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    return os.getpriority(os.PRIO_PROCESS, 0)


def hindrances(node: str, nice: int, store_bytes: float, shm_bytes: float) -> tuple[str, ...]:
    """What of a node slows its engine down, in words that say what to do."""
    words = []
    if nice > 0:
        words.append(f"the engine of node {node[:12]} runs with niceness {nice}, behind everything else there: start its raylet with RAY_worker_niceness=0")
    if shm_bytes < store_bytes:
        words.append(f"/dev/shm of node {node[:12]} has {int(shm_bytes) // MIB} MiB, and its object store {int(store_bytes) // MIB} MiB, which Ray therefore "
                     "keeps on disk: make it larger (of a container: --shm-size), or lower --object-store-memory")
    return tuple(words)


def _store_bytes(node_id: str) -> float:
    return next((float(node["Resources"].get("object_store_memory", 0)) for node in ray.nodes() if node["NodeID"] == node_id), 0.0)


def _shm_bytes() -> float:
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return 0.0
    return float(shm.f_blocks * shm.f_frsize)


# --- an engine ---

class Engine:
    """What runs in an actor.  Every method may be called again with the same arguments: it answers the same.

    ``make`` calls overlap (``max_concurrency``); those of the group ``control`` are answered beside them.
    """

    def __init__(self, setting: Setting, members: Sequence[Member]) -> None:
        self._setting, self._members = setting, list(members)
        self._lock = threading.Lock()
        self._engines: dict[str, concurrent.futures.Future[_core.Engine]] = {}
        self._words = "for an engine to open its data"
        self._nice = stand_up()
        self._node = ray.get_runtime_context().get_node_id()
        self._notes = hindrances(self._node, self._nice, _store_bytes(self._node), _shm_bytes())
        self._made = self._bytes = 0
        self._store: dict[str, int] = {}
        name_command()
        threading.Thread(target=self._look, daemon=True).start()
        threading.Thread(target=self._open, args=("train",), daemon=True).start()

    def _look(self) -> None:
        while True:
            self._store = store_figures()
            time.sleep(LOOK_S)

    def _open(self, split: str) -> None:
        with contextlib.suppress(Exception):  # whoever asks is told
            self._engine(split)

    def _note(self, data_set: str, phase: str, done: int, total: int) -> None:
        self._words = f"for the index of {data_set}: {phase}" + (f" {done} of {total}" if total else "")

    def _engine(self, split: str) -> _core.Engine:
        """The engine of a split, opened by whoever comes first, and again where that failed."""
        with self._lock:
            future = self._engines.get(split)
            first = future is None or (future.done() and future.exception() is not None)
            if future is None or first:
                future = self._engines[split] = concurrent.futures.Future()
        if first:
            try:
                stand_up()
                future.set_result(_core.Engine(self._setting.file, self._setting.pairs, split, self._setting.world, self._note))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def make(self, split: str, step: int, rank: int, micro: int, fields: tuple[str, ...] | None,
             ahead: list[tuple[int, int, int]]) -> tuple[bytes, Any, dict[str, Any]]:
        """A micro-batch as words and memory (``_core.Opener`` opens it), and what is said beside it.

        ahead: places that will be asked for here next: their media are fetched.
        """
        stand_up()  # this thread, which copies into the object store
        engine = self._engine(split)
        engine.expect(ahead)
        while True:
            try:
                words, memory = engine.make(step, rank, micro, fields, MADE_IN_S)
                break
            except TimeoutError:  # whoever asked decides how long
                continue
        array = np.frombuffer(memory, np.uint8)
        with self._lock:
            self._made += 1
            self._bytes += array.nbytes
        return words, array, {"at_s": time.time(), "disk_bytes": put_on_disk(self._store), "node": self._node, "notes": self._notes}

    def label(self, split: str, setting: Setting) -> tuple[bytes | None, str]:
        """The label of a run's parcels; None while the engine opens, and for what it waits."""
        if setting != self._setting:
            raise SetupError(f"the engines of this run were opened with {describe(self._setting, setting)}, and this process says "
                             f"{describe(setting, self._setting)}: give all processes of a run the same options, or another run",
                             Status.ERR_OPTION)
        with self._lock:
            future = self._engines.get(split)
        if future is None:
            threading.Thread(target=self._open, args=(split,), daemon=True).start()
            return None, self._words
        if not future.done():
            return None, self._words
        if future.exception():  # the next that asks has it tried again
            with self._lock:
                self._engines.pop(split, None)
        return future.result().label(), ""

    def place(self, split: str, state: str | None, changes: str) -> tuple[int, str]:
        """Which micro-batch of a rank comes behind a state, and the state in this run's terms."""
        return self._engine(split).place(state, changes)

    def members(self) -> list[Member]:
        """The engines that were agreed on when the run began."""
        return self._members

    def figures(self, split: str) -> dict[str, Any]:
        """What it has made, its core's metrics of a split, and its node's store."""
        with self._lock:
            future, made, size = self._engines.get(split), self._made, self._bytes
        core = future.result().metrics() if future is not None and future.done() and not future.exception() else None
        return {"pid": os.getpid(), "node": self._node, "nice": self._nice, "made": made, "bytes": size, "store": self._store, "core": core}


def describe(setting: Setting, other: Setting) -> str:
    """What of a setting another has not."""
    if setting.file != other.file:
        return f"the configuration {setting.file!r:.300}"
    if setting.world != other.world:
        return f"a world of {setting.world} ranks"
    differing = [f"{name}: {value}" for name, value in setting.pairs if (name, value) not in other.pairs]
    return ", ".join(differing) or "no other option"


# --- all engines of a run ---

# An actor ends when who created it lets it go, and other ranks may read on when a loader here has closed.
_kept: dict[str, list[dict[str, Any]]] = {}


class Fleet:
    """The engines of a run, as one of its ranks sees them."""

    def __init__(self, run: str, setting: Setting, placement: Placement, nodes: Sequence[str] | None, engines: int | None, num_cpus: float,
                 detached: bool, start_timeout: float) -> None:
        if placement not in ("local", "spread", "nodes"):
            raise SetupError(f"placement: {placement!r} is none of local, spread, nodes", Status.ERR_OPTION)
        if (placement == "nodes") != bool(nodes):
            raise SetupError("nodes and placement='nodes' go together: the ids or addresses of the nodes that make batches", Status.ERR_OPTION)
        self.run, self._setting, self._placement = run, setting, placement
        self._num_cpus, self._detached, self._start_timeout = num_cpus, detached, start_timeout
        self._here = ray.get_runtime_context().get_node_id()
        self._handles: dict[str, Any] = {}
        self._alone: dict[str, float] = {}   # until when an engine is not asked, while there are others
        self._doubts: dict[str, float] = {}  # how long one that was late has been left alone for
        self._lock = threading.RLock()
        if placement == "local":
            self.members = [Member(f"{run}/{self._here[:16]}", self._here)]
        else:
            self.members = [Member(f"{run}/{i}", node) for i, node in enumerate(self._nodes(nodes, engines))]
            self.members = [Member(*member) for member in self._ask(self.members[0], "members")]
        for member in self.members:
            self._handle(member)

    def keep(self) -> None:
        """Hold the engines that others may read, too, for as long as this process lives."""
        if self._setting.world > 1:
            _kept.setdefault(self.run, []).append(self._handles)

    def _nodes(self, wanted: Sequence[str] | None, engines: int | None) -> list[str]:
        """Ids of nodes, one for each engine."""
        alive = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))
        if wanted is not None:
            found = []
            for name in wanted:
                ids = [node["NodeID"] for node in alive if name in (node["NodeID"], node["NodeManagerAddress"])]
                if not ids:
                    raise SetupError(f"nodes: the cluster has no node {name!r} that is alive: `ray list nodes` shows them", Status.ERR_OPTION)
                found.append(next((node for node in ids if node not in found), ids[0]))
            return found
        able = [node["NodeID"] for node in alive if node["Resources"].get("CPU", 0) >= self._num_cpus]
        if not able or (engines or 1) > len(able):
            raise SetupError(f"placement spread: {engines or 1} engines of num_cpus={self._num_cpus:g} want a node each, and {len(able)} of the "
                             f"{len(alive)} nodes have so many CPUs: lower engines or num_cpus", Status.ERR_OPTION)
        return able[:engines]

    def _handle(self, member: Member) -> Any:
        """Its actor, which is created where there is none.  Does not wait."""
        with self._lock:
            if member.name not in self._handles:
                self._handles[member.name] = ray.remote(concurrency_groups={"control": 8})(Engine).options(
                    name=member.name, namespace=NAMESPACE, get_if_exists=True, lifetime="detached" if self._detached else None,
                    num_cpus=self._num_cpus, max_concurrency=CONCURRENT, max_restarts=-1,
                    max_task_retries=-1, scheduling_strategy=NodeAffinitySchedulingStrategy(member.node, soft=False),
                ).remote(self._setting, list(self.members))
            return self._handles[member.name]

    def _control(self, member: Member, method: str, *arguments: Any) -> Any:
        return getattr(self._handle(member), method).options(concurrency_group="control").remote(*arguments)

    def _ask(self, member: Member, method: str, *arguments: Any) -> Any:
        """What an engine answers at once, once it is there."""
        try:
            return ray.get(self._control(member, method, *arguments), timeout=self._start_timeout)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.ActorUnschedulableError):
            node = next((node for node in ray.nodes() if node["NodeID"] == member.node and node["Alive"]), None)
            has = f"node {member.node[:12]} has {node['Resources'].get('CPU', 0):g} CPUs" if node else "its node has gone"
            raise WaitError(f"the engine {member.name} did not start in {self._start_timeout:g} s: it wants num_cpus={self._num_cpus:g} free, and {has}: "
                            "`ray status` shows who holds them; lower num_cpus, end what holds them, or raise start_timeout",
                            Status.ERR_TIMEOUT) from None
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        except ray.exceptions.RayError as error:
            raise CallError(f"the engine {member.name} cannot be had: {str(error)[:300]}", Status.ERR_SYSTEM) from None

    def label(self, split: str, progress: Any) -> bytes:
        """Wait until an engine has opened its data, however long that takes, as long as it answers."""
        member = self.members[0]
        while True:
            label, words = self._ask(member, "label", split, self._setting)
            if label is not None:
                return bytes(label)
            if progress is not None:
                progress("", words, 0, 0)
            time.sleep(POLL_S)

    def place(self, split: str, state: str | None, changes: str) -> tuple[int, str]:
        """Which micro-batch of a rank comes behind a state, and the state in this run's terms."""
        number, here = self._ask(self.members[0], "place", split, state, changes)
        return int(number), str(here)

    # --- which one ---

    def home(self, number: int, rank: int) -> int:
        """Which engine makes a rank's micro-batch, when all is well."""
        return (number + rank) % len(self.members)

    def pick(self, number: int, rank: int, tries: int) -> tuple[Member, Any]:
        """The engine to ask, at the so-many-th try.  What has gone or was late is passed over while there are others."""
        now = time.monotonic()
        with self._lock:
            count, first = len(self.members), self.home(number, rank) + tries
            order = [self.members[(first + i) % count] for i in range(count)]
            member = min(order, key=lambda m: max(self._alone.get(m.name, 0.0), now))
            return member, self._handle(member)

    def is_home(self, number: int, rank: int, member: Member) -> bool:
        with self._lock:
            return self.members[self.home(number, rank)] == member

    def doubt(self, member: Member, late: float) -> None:
        """An engine says nothing: it is left alone for as long as it was late, each time for longer, since a trial costs a wait."""
        with self._lock:
            self._doubts[member.name] = min(2 * self._doubts.get(member.name, late / 2), DOUBTS_MAX * late)
            self._alone[member.name] = time.monotonic() + self._doubts[member.name]

    def trust(self, member: Member) -> None:
        """It has answered."""
        with self._lock:
            self._doubts.pop(member.name, None)
            self._alone.pop(member.name, None)

    def went(self, member: Member, engine: Any) -> None:
        """An engine has gone for good.  After a while it is created anew, on its node, or where that has gone too, on another."""
        with self._lock:
            if self._handles.get(member.name) is not engine:
                return  # that was its predecessor
            del self._handles[member.name]
            self._alone[member.name] = time.monotonic() + REVIVE_S
            if self._placement == "local":
                if member != self.members[0]:
                    self.members.remove(member)  # whose it is creates it anew
                self._find_others()
                return
            at = self.members.index(member) if member in self.members else -1
            alive = {node["NodeID"]: node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]}
            if at < 0 or member.node in alive or self._placement == "nodes":
                return
            taken = {m.node for m in self.members}
            free = sorted(node for node, cpus in alive.items() if node not in taken and cpus >= self._num_cpus)
            if free:
                self.members[at] = Member(member.name, free[0])

    def _find_others(self) -> None:
        """Engines of the run on other nodes, which help out."""
        known = {m.name for m in self.members}
        prefix = f"{self.run}/"
        for actor in ray.util.list_named_actors(all_namespaces=True):
            name = actor["name"]
            if actor["namespace"] == NAMESPACE and name.startswith(prefix) and name not in known:
                with contextlib.suppress(ValueError):
                    self._handles[name] = ray.get_actor(name, namespace=NAMESPACE)
                    self.members.append(Member(name, ""))

    def figures(self, split: str, timeout: float) -> dict[str, dict[str, Any]]:
        """Of each engine that answers in time."""
        with self._lock:
            asked = {m.name: self._control(m, "figures", split) for m in self.members if m.name in self._handles}
        ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout) if asked else ([], [])
        told = {}
        for name, ref in asked.items():
            with contextlib.suppress(ray.exceptions.RayError):
                if ref in ready:
                    told[name] = ray.get(ref, timeout=timeout)
        return told


def cause_of(error: ray.exceptions.RayTaskError) -> Exception:
    """What an engine raised, as it raised it."""
    cause = error.cause
    return cause if isinstance(cause, Error) else CallError(f"an engine failed: {str(error)[-600:]}", Status.ERR_SYSTEM)


def stop(run: str) -> int:
    """End the engines of a run that were opened ``detached``; how many there were."""
    count = 0
    _kept.pop(run, None)
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(f"{run}/"):
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(actor["name"], namespace=NAMESPACE))
                count += 1
    return count
