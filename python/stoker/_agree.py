"""Ranks agree on their stream, or stop together with the item that differs.

Each rank puts 16 bytes, the digest of what its stream follows from, into the store of the process group; the first rank compares, and
says to all how it is.  Only when they differ are the items themselves put there, to be named.  This is no collective: it needs no device,
and a wait that has ended leaves nothing behind.

Not here: agreement of the ranks of one machine, which the engine process sees to.
"""
from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch.distributed as dist

from . import _core
from ._exceptions import Error, Status, make
from ._loader import Loader

LIMIT_S = 1800.0  # torch's own for its collectives; an index may be built meanwhile
LEAVE_S = 10.0    # how long the first rank, which may be the store's home, stays for the others to read why it stops
POLL_S = 0.05
LISTED_MAX = 4

Items = dict[str, str]
Verdict = tuple[int, str]  # a status, 0 when all is well, and words
PLACE = frozenset({"epoch", "rows", "step", "micro", "world", "micro_rows"})
WORDS = {"data": "data (the manifests or their media)", "model": "model (the files of the checkpoint folder)"}


def agree(loader: Loader | Exception, group: Any = None, timeout: float = LIMIT_S) -> None:
    """Compare loaders over the ranks of ``torch.distributed``, and stop on all of them where they differ.

    Compared are the options that change the stream, the data sets and facts of their media, the checkpoint, the place where a run goes on,
    ``world_size``, the number of micro-batches and the release; never paths, memory or threads.  Without a process group, and in one of a
    single process, nothing happens.

    Parameters
    ----------
    loader : stoker.Loader or Exception
        This rank's; or why it could not be opened, which the others are told, and which is for the caller to raise.
    group : torch.distributed.ProcessGroup or None
        The ranks that read: each of them calls this equally often.  None: all.
    timeout : float
        Seconds to wait for the others.

    Raises
    ------
    stoker.SetupError
        On all ranks, the same words: what differs, and on which rank.  ``StateError`` where only the place does.
    stoker.WaitError
        Some did not come, who are named.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    ranks = Ranks(dist.group.WORLD if group is None else group, timeout)
    if ranks.count < 2 or ranks.rank < 0:
        return
    if isinstance(loader, Exception):
        ranks.meet("digest", b"!" + (str(loader) if isinstance(loader, Error) else f"{type(loader).__name__}: {loader}").encode(), ranks.compare)
        return
    items = items_of(loader)
    status, words = ranks.meet("digest", b"=" + hashlib.blake2b(json.dumps(items).encode(), digest_size=16).digest(), ranks.compare)
    if status and not words:
        told = {"host": socket.gethostname(), "items": items, "sets": sets_of(loader)}
        status, words = ranks.meet("items", json.dumps(told).encode(), ranks.name)
    if status:
        raise make(status, words, "none", 0, 0, "", "")


# --- what is compared ---

def items_of(loader: Loader) -> Items:
    """What a loader's stream follows from, and where it stands, each in a few characters."""
    items = {"release": _core.VERSION, "split": loader._split, "world_size": str(loader._world), "number of micro-batches": str(len(loader))}
    for line in loader.state_dict()["stoker"].splitlines():
        key, _, value = line.partition(" ")
        if key == "option":
            key, _, value = value.partition(" ")
        elif key == "changed":
            key, value = f"changed {value}", "yes"
        elif key != "plan_version" and key not in PLACE:
            continue                            # digests of what follows
        items[key] = value
    return items


def sets_of(loader: Loader) -> Items:
    """The data sets, to say which differs."""
    try:
        report = _core.index(loader._file, loader._pairs, loader._split, [], False, None)
    except Exception as failed:
        return {"index": f"not readable ({failed})"}
    return {f"data set {one['name']}": f"of {one['records']} records and digest {one['digest'][:12]}" for one in report}


def ranks_text(names: list[str]) -> str:
    """"ranks 0, 1 and 5"."""
    shown = names[:8] + ([f"{len(names) - 8} more"] if len(names) > 8 else [])
    return f"rank{'s' if len(names) > 1 else ''} {', '.join(shown[:-1])}{' and ' if len(shown) > 1 else ''}{shown[-1]}"


def difference(name: str, values: list[str], ranks: list[str]) -> str:
    """"seed is 1 on ranks 0 and 2, and 7 on rank 1"; "": it does not differ."""
    by_value: dict[str, list[str]] = {}
    for value, rank in zip(values, ranks, strict=True):
        by_value.setdefault(value, []).append(rank)
    if len(by_value) < 2:
        return ""
    parts = [f"{value} on {ranks_text(them)}" for value, them in sorted(by_value.items(), key=lambda item: -len(item[1]))[:LISTED_MAX]]
    return f"{WORDS.get(name, name)} is {', '.join(parts[:-1])}, and {parts[-1]}"


def differences(told: list[Items], ranks: list[str]) -> dict[str, str]:
    """By item, where it differs, in words."""
    names = dict.fromkeys(name for items in told for name in items)
    words = {name: difference(name, [items.get(name, "none") for items in told], ranks) for name in names}
    return {name: text for name, text in words.items() if text}


# --- the ranks ---

class Ranks:
    """The ranks of a process group, who meet in its store."""

    def __init__(self, group: Any, timeout: float) -> None:
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        self._group, self._timeout = group, timeout
        if self.rank >= 0:
            self._store = group.get_group_store()
            self._name = f"stoker/{self._store.add(f'stoker/{self.rank}', 1)}"  # of this meeting: all come equally often

    def meet(self, about: str, value: bytes, judge: Callable[[list[bytes]], Verdict]) -> Verdict:
        """What the first rank says of the values of all."""
        keys, said = [f"{self._name}/{about}/{rank}" for rank in range(self.count)], f"{self._name}/{about}"
        self._store.set(keys[self.rank], value)
        if self.rank == 0:
            late = self._late(keys, self._timeout)
            verdict = self._waited_for(late) if late else judge(self._store.multi_get(keys))
            self._store.set(said, json.dumps(verdict))
            if verdict[0]:
                self._late([f"{key}/read" for rank, key in enumerate(keys) if rank and rank not in late], LEAVE_S)
            return verdict
        if self._late(keys[:1], self._timeout) or self._late([said], self._timeout + LEAVE_S):
            return self._waited_for([0])
        status, words = json.loads(self._store.get(said))
        if status:
            self._store.set(f"{keys[self.rank]}/read", b"")
        return status, words

    def _late(self, keys: list[str], seconds: float) -> list[int]:
        """Which of them are not there in time."""
        end = time.monotonic() + seconds
        while keys and not self._store.check(keys):
            if time.monotonic() > end:
                return [at for at, key in enumerate(keys) if not self._store.check([key])]
            time.sleep(POLL_S)
        return []

    def _names(self, ranks: Iterable[int]) -> list[str]:
        return [str(dist.get_global_rank(self._group, rank)) for rank in ranks]

    def _waited_for(self, late: list[int]) -> Verdict:
        return Status.ERR_TIMEOUT, (f"{ranks_text(self._names(late))} did not open a loader within {self._timeout:g} s of the others: see what became of "
                                    f"them, or name the group of the ranks that read")

    def compare(self, values: list[bytes]) -> Verdict:
        """Of digests, or of why there is none."""
        failed = [rank for rank, value in enumerate(values) if value.startswith(b"!")]
        if failed:
            return Status.ERR_OPTION, f"{ranks_text(self._names(failed[:1]))} could not open its loader: {values[failed[0]][1:].decode()}"
        return (0, "") if len(set(values)) == 1 else (Status.ERR_OPTION, "")

    def name(self, values: list[bytes]) -> Verdict:
        """Of items that differ somewhere."""
        told = [json.loads(value) for value in values]
        hosts, names = [each["host"] for each in told], self._names(range(self.count))
        if len(set(hosts)) > 1:
            names = [f"{name} ({host})" for name, host in zip(names, hosts, strict=True)]
        found = differences([each["items"] for each in told], names)
        if "data" in found:
            sets = differences([each["sets"] for each in told], names)
            found = {**sets, **{name: text for name, text in found.items() if name != "data" or not sets}}
        listed = list(found.values())
        more = f"; and {len(listed) - LISTED_MAX} more" if len(listed) > LISTED_MAX else ""
        only_place = PLACE.issuperset(found)
        return (Status.ERR_STATE if only_place else Status.ERR_OPTION,
                f"the ranks do not agree: {'; '.join(listed[:LISTED_MAX])}{more}: give all ranks "
                f"{'the state of one checkpoint' if only_place else 'the same options and data'}")
