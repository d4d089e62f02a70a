"""Keywords to options: the table of the library decides, this only writes values as YAML."""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import _core

Config = str | os.PathLike[str] | Mapping[str, Any] | None


class Option(NamedTuple):
    """One row of the option table (docs/options.md)."""

    name: str
    type: str
    default: str
    choices: str
    help: str
    changes_stream: bool
    per_set: bool


def options() -> list[Option]:
    """All options: names, types, defaults, and what they mean."""
    return [Option(*row) for row in _core.option_table()]


def _kind(name: str) -> str:
    """The type of an option by its keyword: "batch", "limits.json_depth", "data.docs.path"."""
    kinds = {option.name: option.type for option in options()}
    last = name.rsplit(".", 1)[-1]
    return kinds.get(f"data[].{last}" if name.startswith("data.") else name) or kinds.get(last, "")


def _path(value: str) -> str:
    """A path of a keyword starts from the working folder; one in a configuration from the configuration's own."""
    return value if not value or "://" in value else os.path.abspath(value)


def _as_plain(value: Any, kind: str) -> Any:
    """What JSON can hold."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if isinstance(value, str):
        return _path(value) if kind.startswith("path") else value
    if isinstance(value, Mapping):
        return {str(key): _as_plain(item, "") for key, item in value.items()}
    if isinstance(value, Iterable):
        return [_as_plain(item, kind) for item in value]
    if hasattr(value, "item"):  # a number of NumPy
        return value.item()
    return value


def pairs_of(keywords: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as YAML.  None: as if it were not given.

    A mapping is a group (``limits={"json_depth": 8}``), unless the option is one itself."""
    pairs: list[tuple[str, str]] = []
    for name, value in keywords.items():
        if value is None:
            continue
        kind = _kind(name)
        if isinstance(value, Mapping) and not kind:
            pairs += pairs_of({f"{name}.{key}": item for key, item in value.items()})
        else:
            pairs.append((name, json.dumps(_as_plain(value, kind), ensure_ascii=False)))
    return pairs


def read(config: Config, keywords: Mapping[str, Any]) -> tuple[str | None, list[tuple[str, str]]]:
    """A file or None, and the pairs over it."""
    if isinstance(config, Mapping):
        return None, pairs_of(config) + pairs_of(keywords)
    return None if config is None else os.fspath(config), pairs_of(keywords)
