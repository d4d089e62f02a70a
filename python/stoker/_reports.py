"""What the commands ``stoker index`` and ``stoker plan`` say, as dicts."""
from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from . import _core
from ._loader import Progress
from ._options import Config, read


def index(config: Config, *, split: Literal["train", "eval"] = "train", exclude: Iterable[str | os.PathLike[str]] = (),
          include_all: bool = False, progress: Progress | None = None, **options: Any) -> dict[str, Any]:
    """Collect the facts of all records and media, and list what is unusable and why: ``stoker index --json``.

    Goes on where an interrupted build stopped, and reads only what has changed since.

    Parameters
    ----------
    config, split, **options
        As of ``stoker.Loader``.  ``index="verify"`` decodes every medium once.
    exclude : iterable of paths
        Lists of records to leave out for good: ids (SET/ID, SET#LINE), or dead letters.
    include_all : bool
        First forget what earlier lists left out.
    progress : callable or None
        ``progress(data_set, phase, done, total)``, some times a second.

    Returns
    -------
    dict
        ``sets``, one dict a data set; its ``refusal`` is None if a run would start.
    """
    file, pairs = read(config, options)
    return {"schema": 2, "sets": _core.index(file, pairs, split, list(exclude), include_all, progress)}


def plan(config: Config, world_size: int = 1, *, split: Literal["train", "eval"] = "train", progress: Progress | None = None,
         **options: Any) -> dict[str, Any]:
    """What a run will hold, before it starts: ``stoker plan --json``.

    Returns
    -------
    dict
        Exact steps, rows, samples, tokens and supervised tokens; ``fill``, ``imbalance`` and ``step_supervised_tokens``
        (docs/plan.md).
    """
    file, pairs = read(config, options)
    return _core.plan(file, pairs, split, world_size, progress)
