"""Batches from engines on a Ray cluster: the same stream, made on many machines, and no data through a driver.

    loader = stoker.ray.Loader("stoker.yaml", rank, world_size, placement="spread", num_cpus=8)
    for batch in loader:
        ...

Engines are actors, one a node, which whoever comes first creates.  A rank keeps some calls under way, owns what they return, and reads it
in its node's object store without a copy.  Which engine makes a micro-batch changes nothing in it, so calls of one that is late or has
gone are asked of another.

Not here: the actors and where they are (_fleet.py).
"""
from __future__ import annotations

import collections
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import ray

from . import _core, _loader
from ._batch import Batch, PixelRule
from ._exceptions import CallError, Error, NetworkError, SetupError, StateError, Status, WaitError
from ._fleet import MIB, NAMESPACE, Fleet, Member, Placement, Setting, cause_of, put_on_disk, stop, store_figures
from ._options import Config, read
from ._times import Times

__all__ = ["Loader", "connect", "stop"]

SLICE_S = 0.05      # of waits, so that all of them can be ended
LOOK_S = 2.0        # between two looks at the node's object store
AT_ENGINE = 4       # calls that an engine should have under way, from all its ranks
logger = logging.getLogger("stoker")


def connect(address: str | None = None) -> None:
    """Be connected to a cluster: nothing to do in Ray's own workers and actors; processes that torchrun started join the cluster of their
    machine (``RAY_ADDRESS``, else the one that `ray start` started here)."""
    if ray.is_initialized():
        return
    try:
        ray.init(address=address or os.environ.get("RAY_ADDRESS") or "auto", namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING)
    except Exception as error:
        refused = "auth" in type(error).__name__.lower() or "token" in str(error).lower()
        fix = ("the cluster and this process disagree about authentication: set RAY_AUTH_MODE to the same value (disabled, or token with the same "
               "token) for `ray start` and for all processes") if refused else "start it (`ray start --head`), or say where it is (RAY_ADDRESS)"
        raise CallError(f"cannot join a Ray cluster: {fix}: {str(error)[:300]}", Status.ERR_SYSTEM) from error


def _name_of_job() -> str:
    """Of a run that neither an option nor a launcher names."""
    if ray.get_runtime_context().worker.mode != ray.SCRIPT_MODE:
        return f"job-{ray.get_runtime_context().get_job_id()}"  # the same for all workers of a Ray job
    raise CallError("the run has no name, by which its ranks find their engines: set `run`", Status.ERR_USAGE)


def _ranks_here(node_ranks: Iterable[int] | None, world: int) -> int:
    """Ranks that share this node's object store; where nobody says, all of them."""
    if node_ranks is not None:
        return len(tuple(node_ranks))
    return min(int(os.environ.get("LOCAL_WORLD_SIZE", world)), world)


class _Call:
    """A micro-batch that is asked for."""

    __slots__ = ("number", "place", "tries", "asked", "member", "engine", "ref", "value", "error")

    def __init__(self, number: int, place: tuple[int, int, int]) -> None:
        self.number, self.place = number, place
        self.tries = 0
        self.asked = 0.0
        self.member: Member
        self.engine: Any = None
        self.ref: Any = None
        self.value: Any = None
        self.error: Exception | None = None


class _Calls:
    """A rank's way to its micro-batches, in the place of ``_core.Reader``: calls under way, the oldest first.

    ``next`` asks, and takes what has come; a thread of its own waits for results, so that they are pulled to this node while the trainer
    trains, and asks again what is late or lost.
    """

    def __init__(self, fleet: Fleet, split: str, rank: int, opener: _core.Opener, fields: tuple[str, ...] | None, outstanding: int, late: float,
                 on_spill: str, stores: Mapping[str, float], text: str | None, changes: str) -> None:
        self._fleet, self._split, self._rank, self._opener, self._fields = fleet, split, rank, opener, fields
        self._outstanding, self._late, self._on_spill, self._stores = outstanding, late, on_spill, stores
        self._number, self._base = fleet.place(split, text, changes)
        self._start, self._state = self._number, self._base
        self._calls: collections.deque[_Call] = collections.deque()
        self._changed = threading.Condition()
        self._silent: dict[Member, Any] = {}  # of each engine that was late, one of its calls
        self._disk: dict[str, int] = {}
        self._store: dict[str, int] = {}
        self._came = 0.0
        self._trouble: Exception | None = None  # what every later call says
        self._last = ""  # failure of a call
        self._cores: dict[str, Any] = {}  # figures of each engine, when it told them last
        self.closed = False
        self._links: dict[str, dict[str, float]] = {}  # what came from other nodes, by theirs
        self._noted: set[str] = set()
        self.counts: dict[str, Any] = {"calls": 0, "asked_again": 0, "received_bytes": 0, "arrival_s": 0.0, "get_s": 0.0, "spilled_bytes": 0}
        self._here = ray.get_runtime_context().get_node_id()
        with self._changed:
            self._fill()
        self._thread = threading.Thread(target=self._run, name="stoker-calls", daemon=True)
        self._thread.start()
        threading.Thread(target=self._look, name="stoker-store", daemon=True).start()

    @property
    def steps(self) -> int:
        return self._opener.steps

    @property
    def micros(self) -> int:
        return self._opener.micros

    # --- asking ---

    def _place(self, number: int) -> tuple[int, int, int]:
        step, micro = self._opener.place(number)
        return step, self._rank, micro

    def _fill(self, done: int = 0) -> None:
        """Ask until so many calls are under way beside those that are done.  With the lock."""
        while len(self._calls) < self._outstanding + done and self._number < self.micros:
            call = _Call(self._number, self._place(self._number))
            self._ask(call)
            self._calls.append(call)
            self._number += 1
        self._changed.notify_all()

    def _ask(self, call: _Call) -> None:
        member, engine = self._fleet.pick(call.number, self._rank, call.tries)
        first = call.number + self._outstanding
        ahead = [self._place(n) for n in range(first, min(first + self._outstanding, self.micros)) if self._fleet.is_home(n, self._rank, member)]
        call.member, call.engine, call.asked = member, engine, time.monotonic()
        call.ref = engine.make.remote(self._split, *call.place, self._fields, ahead)
        self.counts["calls"] += 1

    def _ask_again(self, call: _Call, why: str, gone: bool) -> None:
        """Of another engine, or of the same when there is no other."""
        self._last = f"{call.member.name}: {why}"
        logger.info("stoker: rank %d asks again for step %d, micro-batch %d: %s", self._rank, call.place[0], call.place[2], self._last)
        if gone:
            self._fleet.went(call.member, call.engine)
        call.ref = None
        call.tries += 1
        self.counts["asked_again"] += 1
        self._ask(call)

    # --- the thread ---

    def _run(self) -> None:
        try:
            while not self.closed:
                with self._changed:
                    waiting = [call for call in self._calls if call.value is None and call.error is None]
                    if not waiting:
                        self._changed.wait(SLICE_S)
                if waiting:
                    self._collect(waiting)
                self._hear_again()
        except Exception as error:
            self._end(CallError(f"waiting for engines failed: {type(error).__name__}: {str(error)[:300]}", Status.ERR_SYSTEM))

    def _end(self, error: Exception) -> None:
        with self._changed:
            self._trouble = self._trouble or error
            self._changed.notify_all()

    def _collect(self, waiting: list[_Call]) -> None:
        # While this waits, Ray pulls to this node what is made elsewhere.
        ready, _ = ray.wait([call.ref for call in waiting], num_returns=1, timeout=SLICE_S, fetch_local=True)
        for call in waiting:
            if call.ref in ready:
                self._take(call)
        oldest = waiting[0]
        silent_s = time.monotonic() - max(oldest.asked, self._came)
        if oldest.value is None and oldest.error is None and silent_s > self._late and len(self._fleet.members) > 1:
            late = oldest.member
            self._fleet.doubt(late, self._late)
            self._silent[late] = oldest.ref
            for call in waiting:
                if call.member == late and call.value is None and call.error is None:
                    self._ask_again(call, f"late: nothing in {self._late:g} s", False)

    def _hear_again(self) -> None:
        """An engine that answers at last is asked again."""
        for member, ref in list(self._silent.items()):
            if ray.wait([ref], timeout=0, fetch_local=False)[0]:
                del self._silent[member]
                self._fleet.trust(member)

    def _take(self, call: _Call) -> None:
        began = time.perf_counter()
        try:
            value = ray.get(call.ref, timeout=self._late)
        except ray.exceptions.RayTaskError as error:
            cause = cause_of(error)
            elsewhere = isinstance(cause, (NetworkError, CallError)) and call.tries + 1 < len(self._fleet.members)
            if elsewhere:
                self._ask_again(call, str(cause)[:200], False)
                return
            with self._changed:
                call.error, call.ref = cause, None
                self._changed.notify_all()
            return
        except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnschedulableError) as error:
            self._ask_again(call, f"gone ({type(error).__name__})", True)
            time.sleep(SLICE_S)
            return
        except ray.exceptions.RayError as error:
            self._ask_again(call, type(error).__name__, False)
            time.sleep(SLICE_S)
            return
        words, memory, said = value
        self._fleet.trust(call.member)
        self._came = time.monotonic()
        size, arrival_s = len(words) + memory.nbytes, max(0.0, time.time() - said["at_s"])
        self.counts["get_s"] += time.perf_counter() - began
        self.counts["arrival_s"] += arrival_s
        self.counts["received_bytes"] += size
        if said["node"] != self._here:
            link = self._links.setdefault(said["node"], {"bytes": 0, "pull_s": 0.0})
            link["bytes"] += size
            link["pull_s"] += arrival_s
        self._note_disk(said["node"], said["disk_bytes"])
        self._warn(said["notes"])
        with self._changed:
            call.value, call.ref = (words, memory), None
            self._changed.notify_all()

    # --- the stores ---

    def _look(self) -> None:
        """On a thread of its own: a raylet answers when all its workers have, and one may stand still."""
        while not self.closed:
            self._store = store_figures()
            self._note_disk(self._here, put_on_disk(self._store))
            time.sleep(LOOK_S)

    def _note_disk(self, node: str, disk_bytes: int | None) -> None:
        """Bytes that a node's store has put on disk since this loader was opened are an error of configuration."""
        if disk_bytes is None or disk_bytes <= (before := self._disk.setdefault(node, disk_bytes)):
            return
        self._disk[node] = disk_bytes
        self.counts["spilled_bytes"] += disk_bytes - before
        more, has = disk_bytes - before, int(self._stores.get(node, 0))
        words = (f"the object store of node {node[:12]}, of {has // MIB} MiB, has put {more // MIB + 1} MiB on disk: start the node with "
                 f"--object-store-memory={has + 2 * more} or more, lower outstanding (now {self._outstanding}), keep or micro_batch, or end what "
                 "else holds objects there (`ray memory` shows it)")
        if self._on_spill == "error":
            self._end(SetupError(words, Status.ERR_BUDGET))
        else:
            warnings.warn(words, RuntimeWarning, stacklevel=1)

    def _warn(self, notes: Iterable[str]) -> None:
        """Once of each thing that slows engines down on some node."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                warnings.warn(note, RuntimeWarning, stacklevel=1)

    # --- the reader ---

    def next(self, timeout: float | None) -> Batch:
        if self._opener.out > self._opener.keep:
            raise SetupError(f"rank {self._rank} holds {self._opener.out} batches, and keep is {self._opener.keep}: release some, or raise keep",
                             Status.ERR_KEEP)
        with self._changed:
            call = self._wait_first(timeout)
            self._fill(1)
        # Whatever fails until here and in the next line, a micro-batch that came stays the next one.
        try:
            batch = self._opener.open(self._base, *call.value)
        except StateError as error:
            raise StateError(f"engine {call.member.name}: {error.message}", error.status) from None
        with self._changed:
            if call in self._calls:  # the loader may have been closed meanwhile
                self._calls.remove(call)
        self._state = batch._state()
        return batch

    def _wait_first(self, timeout: float | None) -> _Call:
        """The oldest call, once it has come.  With the lock, which is away while it waits."""
        began = time.monotonic()
        while True:
            if self.closed:
                raise CallError("the loader is closed", Status.ERR_USAGE)
            if self._trouble:
                raise self._trouble
            if not self._calls:
                raise StopIteration
            call = self._calls[0]
            if call.error:
                raise call.error
            if call.value is not None:
                return call
            waited = time.monotonic() - began
            if waited >= self._opener.timeout:
                raise WaitError(f"no micro-batch in {waited:.0f} s: step {call.place[0]} of rank {self._rank} was asked of {call.member.name}"
                                + (f"; the last failure: {self._last}" if self._last else "") + ": look at `ray status`, or raise timeout",
                                Status.ERR_TIMEOUT)
            if timeout is not None and waited >= timeout:
                raise TimeoutError("no micro-batch was ready in the time given: ask again")
            left = self._opener.timeout if timeout is None else timeout
            self._changed.wait(min(SLICE_S, max(left - waited, 0.0)))

    def rewind(self) -> None:
        with self._changed:
            self._calls.clear()
            self._number, self._state = self._start, self._base
            self._fill()

    def state(self) -> str:
        return self._state

    def metrics(self) -> dict[str, Any]:
        engines = self._fleet.figures(self._split, 5.0)
        self._cores.update({name: core for name, told in engines.items() if (core := told.pop("core"))})
        if not self._cores:
            raise WaitError("no engine of the run told its figures in 5 s: look at `ray status`", Status.ERR_TIMEOUT)
        links = {node: dict(link) for node, link in list(self._links.items())}
        return {**add_up([*self._cores.values()]),
                "ray": {**self.counts, "links": links, "outstanding": self._outstanding, "engines": engines, "store": self._store}}

    def close(self) -> None:
        """What was asked for is not wanted any more; batches stay."""
        with self._changed:
            self.closed = True
            self._calls.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(2.0)


def add_up(dicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Reports of several engines as one: numbers summed, times of one request and of the first batch those of the slowest engine, prices by the
    sum; the first one's where it is no number.  What one has not (a reason that never came up) is 0."""
    total: dict[str, Any] = {}
    for key in dict.fromkeys(key for one in dicts for key in one):
        values = [one[key] for one in dicts if key in one]
        value = values[0]
        if isinstance(value, Mapping):
            total[key] = add_up(values)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            total[key] = max(values) if key.endswith("_ms") or key == "first_batch_s" else sum(values)
        else:
            total[key] = value
    if total.get("samples") and "store" in total:
        total["store"]["price_per_million_samples"] = 1e6 * total["store"]["price"] / total["samples"]
    return total


class Loader(_loader.Loader):
    """``stoker.Loader`` whose batches are made by engines on a Ray cluster (docs/ray.md).

    Parameters
    ----------
    config, rank, world_size, split, run, state, fields, readers, node_ranks, allow_changes, progress, **options
        As ``stoker.Loader``; each of a rank's ``readers`` owns what it is given.
        A configuration that is a file has to be under the same path on the nodes that make batches, and so have
        its data.  ``workers``, ``memory``, ``prefetch`` and ``fetch_ahead`` are those of each engine.
    placement : {"local", "spread", "nodes"} or None
        Where engines are; None: as the option ``placement`` says.  "local": one on the node of each rank, so that no batch crosses the network; "spread": one on each node of
        the cluster that has the CPUs (or on ``engines`` of them), and all make batches of all ranks; "nodes": on ``nodes``.
    nodes : sequence of str or None
        Ids or addresses of nodes; the same on all ranks.
    engines : int or None
        With "spread", how many.
    num_cpus : float or None
        CPUs that an engine declares to Ray.  None: ``workers`` where it is given here, else 1.
    outstanding : int or None
        Calls that a rank keeps under way.  None: as many as keep the engines busy, within ``store_share``.
    store_share : float
        The part of a node's object store that this run may fill, its training and evaluation together.
    late : float
        Seconds after which the oldest call is asked of another engine.
    on_spill : {"error", "warn"}
        When an object store puts objects on disk: an error of ``next``, or a warning.
    detached : bool
        Engines outlive who created them, until ``stoker.ray.stop(run)``.
    start_timeout : float
        Seconds for an engine's actor to start.
    address : str or None
        Of the cluster, where this process has not joined one.

    Notes
    -----
    Each engine counts what it makes: ``errors.masked`` and the dead-letter file are each engine's own.
    """

    _by_machine = False

    def __init__(self, config: Config, rank: int = 0, world_size: int = 1, *, split: Literal["train", "eval"] = "train", run: str | None = None,
                 state: str | int | Mapping[str, str] | None = None, fields: Iterable[str] | None = None, readers: int = 1,
                 node_ranks: Iterable[int] | None = None, allow_changes: Iterable[str] = (), progress: _loader.Progress | None = None,
                 placement: Placement | None = None, nodes: Sequence[str] | None = None, engines: int | None = None, num_cpus: float | None = None,
                 outstanding: int | None = None, store_share: float = 0.5, late: float = 30.0, on_spill: Literal["error", "warn"] = "error", detached: bool = False,
                 start_timeout: float = 120.0, address: str | None = None, **options: Any) -> None:
        if not 0 <= rank < world_size:
            raise CallError(f"rank {rank} is not in a world of {world_size}", Status.ERR_USAGE)
        connect(address)
        self._file, self._pairs = read(config, {"run": run, **options})
        if isinstance(self._file, str):
            self._file = os.path.abspath(self._file)
        self._split, self._rank, self._world, self._progress = split, rank, world_size, progress
        self._pixel_rule = PixelRule(self._file, self._pairs, split)
        self._fields = None if fields is None else tuple(fields)
        self._late, self._on_spill = late, on_spill
        cpus = num_cpus if num_cpus is not None else options["workers"] if isinstance(options.get("workers"), int) else 1
        own_name = _loader.own_name() if world_size == 1 and readers == 1 else None
        named, placed = _core.run_and_placement(self._file, self._pairs, own_name)
        self._placement = placement or placed
        self._fleet = Fleet(named or _name_of_job(), Setting(self._file, self._pairs, world_size), self._placement, nodes, engines,
                            cpus, detached, start_timeout)
        self._opener = _core.Opener(self._fleet.label(split, progress), self._fields, Batch)
        here = _ranks_here(node_ranks, world_size) * readers
        self._stores = {node["NodeID"]: float(node["Resources"].get("object_store_memory", 0)) for node in ray.nodes() if node["Alive"]}
        each = here if self._placement == "local" else world_size * readers / len(self._fleet.members)
        self._outstanding = self._credits(here, each, outstanding, store_share)
        self._open(_loader.state_text(state), allow_changes)
        self._fleet.keep()
        _loader._open_loaders.add(self)

    @property
    def run(self) -> str:
        """The name of the run, by which its ranks find their engines, and ``stop`` ends them."""
        return self._fleet.run

    def _of_other_split(self) -> Loader | None:
        """This rank's loader of the other split, where it is open: training and evaluation share the stores."""
        return next((other for other in list(_loader._open_loaders) if isinstance(other, Loader) and not other._reader.closed
                     and (other.run, other._rank) == (self.run, self._rank) and other._split != self._split), None)

    def _credits(self, ranks_here: int, ranks_each: float, wanted: int | None, share: float) -> int:
        """Calls under way, so that what they return fits into the given part of the stores: of this node, where the trainers' own batches
        are too, and of the engines' nodes.  What the rank's loader of the other split may have there counts."""
        size, keep, other = self._opener.batch_bytes, self._opener.keep, self._of_other_split()
        other_calls = other._outstanding * other._opener.batch_bytes if other else 0
        other_held = other_calls + (other._opener.keep * other._opener.batch_bytes if other else 0)
        own = self._stores.get(ray.get_runtime_context().get_node_id(), 0.0)
        theirs = min((self._stores.get(member.node, own) for member in self._fleet.members), default=own)
        ranks_each = max(ranks_each, 1)
        most = min((share * own / ranks_here - other_held) / size - keep, (share * theirs / ranks_each - other_calls) / size)
        auto = max(2, -(-AT_ENGINE // ranks_each))
        calls = int(wanted if wanted is not None else min(auto, most))
        if calls < 1 or calls > most:
            calls = max(calls, 1)
            room = int(max(ranks_here * (size * (calls + keep) + other_held), ranks_each * (size * calls + other_calls)))
            beside = f" beside {other_held} bytes of its loader for {'evaluation' if other._split == 'eval' else 'training'}" if other else ""
            raise SetupError(f"the object store of a node holds {int(min(own, theirs)) // MIB} MiB, and {calls} calls under way of "
                             f"{ranks_here} ranks with micro-batches of up to {size} bytes, and keep {keep},{beside} take {room} bytes, over store_share "
                             f"{share:g} of it: start the nodes with --object-store-memory={int(room / share) + 1} or more, or lower micro_batch, keep or "
                             "outstanding", Status.ERR_BUDGET)
        return calls

    def _open(self, text: str | None, allow_changes: Iterable[str] = ()) -> None:
        changes = allow_changes if isinstance(allow_changes, str) else ",".join(allow_changes)
        self._times = Times()
        self._at_beginning = text is None
        self._reader: Any = _Calls(self._fleet, self._split, self._rank, self._opener, self._fields, self._outstanding, self._late, self._on_spill,
                                   self._stores, text, changes)

    def __repr__(self) -> str:
        return (f"<stoker.ray.Loader of {self._file if isinstance(self._file, str) else 'options'}, {self._split}, rank {self._rank} of {self._world}, "
                f"{len(self._fleet.members)} engines>")
