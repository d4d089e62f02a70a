"""What a trainer's own arguments decide: a configuration may repeat it, and is refused where it says otherwise, with both names.

Not here: which arguments those are; the modules that adapt to a trainer know.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from ._options import Config, options as table

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
    """The keywords, with those for evaluation that it has of them."""


def read_stated(config: Config, options: Mapping[str, Any]) -> Stated:
    """Read what is stated.  Keywords are for both splits; ``eval.NAME``, and what stands under ``eval``, is for evaluation alone.

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
    both = {name: value for name, value in options.items() if not name.startswith("eval.")}
    if not isinstance(own, Mapping):
        return Stated({**top, **both}, None, dict(options))
    known = {option.name.partition(".")[0] for option in table()} - {"run", "engine", "placement", "keep", *_OF_TRAINING}
    given = {f"eval.{name}": value for name, value in both.items() if name in known and name not in own}
    given.update({name: value for name, value in options.items() if name.startswith("eval.")})
    inherited = {name: value for name, value in top.items() if name not in _OF_TRAINING}
    return Stated({**top, **both}, {**inherited, **own, **{name[5:]: value for name, value in given.items()}}, {**both, **given})


def agree(said: Mapping[str, Any], wanted: Mapping[str, Wanted], config: Config, section: str = "") -> dict[str, Any]:
    """The wanted values; refused where something else is stated."""
    where = (os.fspath(config) if isinstance(config, (str, os.PathLike)) else "the configuration") + (section and f", {section}")
    for name, (value, by) in wanted.items():
        other = said.get(name)
        if other not in (None, value, "auto", "all"):
            raise ValueError(f"{name} is {other!r} in {where}, and {value!r} by {by}: let them agree, or leave {name} out of {where}")
    return {name: value for name, (value, _) in wanted.items()}
