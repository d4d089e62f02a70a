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


def _path(value: str) -> str:
    """A path of a keyword or a mapping starts from the working folder; one in a file from the file's own."""
    return value if not value or "://" in value else os.path.abspath(value)


def _kind(name: str, kinds: Mapping[str, str]) -> str:
    """The type of an option by its keyword: "batch", "limits.json_depth", "data.docs.path", "eval.batch"."""
    name = name.removeprefix("eval.")
    last = name.rsplit(".", 1)[-1]
    return kinds.get(f"data[].{last}" if name.startswith("data.") else name) or kinds.get(last, "")


def _as_plain(value: Any, name: str, kinds: Mapping[str, str]) -> Any:
    """What JSON can hold."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    if isinstance(value, str):
        return _path(value) if _kind(name, kinds).startswith("path") else value
    if isinstance(value, Mapping):
        return {str(key): _as_plain(item, f"{name}.{key}" if name else str(key), kinds) for key, item in value.items()}
    if isinstance(value, Iterable):
        return [_as_plain(item, name, kinds) for item in value]
    if hasattr(value, "item"):  # a number of NumPy
        return value.item()
    return value


def _as_text(value: Any, name: str, kinds: Mapping[str, str]) -> str:
    """As YAML."""
    return json.dumps(_as_plain(value, name, kinds), ensure_ascii=False)


def _pairs(keywords: Mapping[str, Any], kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and values as YAML.  None: as if it were not given.

    A mapping is a group (``limits={"json_depth": 8}``, ``eval={"batch": 2}``), unless the option is one itself."""
    pairs: list[tuple[str, str]] = []
    for name, value in keywords.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and (name == "eval" or not _kind(name, kinds)):
            pairs += _pairs({f"{name}.{key}": item for key, item in value.items()}, kinds)
        else:
            pairs.append((name, _as_text(value, name, kinds)))
    return pairs


def read(config: Config, keywords: Mapping[str, Any]) -> tuple[str | bytes | None, list[tuple[str, str]]]:
    """A file, the text of a mapping, or None; and the pairs over it.

    In a mapping, too, a name with a dot ("data.docs.weight") is over what the others say."""
    kinds = {option.name: option.type for option in options()}
    pairs = _pairs(keywords, kinds)
    if isinstance(config, Mapping):
        given = {name: value for name, value in config.items() if value is not None}
        text = _as_text({name: value for name, value in given.items() if "." not in name}, "", kinds)
        return text.encode(), _pairs({name: value for name, value in given.items() if "." in name}, kinds) + pairs
    return None if config is None else os.fsdecode(config), pairs
