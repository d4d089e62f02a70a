"""What a trainer's own arguments decide: a configuration may repeat it, and is refused where it says otherwise, with both names.

Not here: which arguments those are; the modules that adapt to a trainer know.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from ._options import Config

_OF_TRAINING = ("data", "batch", "micro_batch", "steps", "epochs", "shuffle")


class Wanted(NamedTuple):
    """The value of an option, and who says so."""

    value: Any
    by: str


class Stated(NamedTuple):
    """What configuration and keywords say, at the top."""

    train: dict[str, Any]
    evaluation: dict[str, Any] | None
    """None: there is none."""
    options: dict[str, Any]
    """The keywords."""


def read_stated(config: Config, options: Mapping[str, Any]) -> Stated:
    """Read what is stated.  Keywords are for both splits, but for what ``eval`` states itself; ``eval.NAME`` is for evaluation alone.

    A file that is wrong is opened, and refused, later."""
    read: Any = config
    if isinstance(config, (str, os.PathLike)):
        try:
            with open(config, encoding="utf-8") as file:
                read = yaml.safe_load(file)
        except (OSError, ValueError, yaml.YAMLError):
            read = None
    top = dict(read) if isinstance(read, Mapping) else {}
    own = top.pop("eval", None)
    options = {**options, **{f"eval.{name}": value for name, value in (options.get("eval") or {}).items()}}
    options.pop("eval", None)
    train = {**top, **{name: value for name, value in options.items() if not name.startswith("eval.")}}
    if not isinstance(own, Mapping):
        return Stated(train, None, options)
    inherited = {name: value for name, value in train.items() if name not in _OF_TRAINING}
    given = {name[5:]: value for name, value in options.items() if name.startswith("eval.")}
    return Stated(train, {**inherited, **own, **given}, options)


def agree(said: Mapping[str, Any], wanted: Mapping[str, Wanted], config: Config, section: str = "") -> dict[str, Any]:
    """The wanted values; refused where something else is stated."""
    where = (os.fspath(config) if isinstance(config, (str, os.PathLike)) else "the configuration") + (section and f", {section}")
    for name, (value, by) in wanted.items():
        other = said.get(name)
        if other not in (None, value, "auto", "all"):
            raise ValueError(f"{name} is {other!r} in {where}, and {value!r} by {by}: let them agree, or leave {name} out of {where}")
    return {name: value for name, (value, _) in wanted.items()}
