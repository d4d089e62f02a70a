"""Stoker: exact tensors for vision-language training, ready before the trainer asks.

    with stoker.Loader("stoker.yaml", rank=0, world_size=8) as loader:
        for batch in loader:                 # a mapping of NumPy views, no copy
            with loader.step():              # what the training itself takes
                loss = train(batch)
        checkpoint["data"] = loader.state_dict()

Needs NumPy; torch and trainers are imported only by the modules that adapt to them.  Names are loaded when they are first asked for,
so that ``stoker.plot`` runs under any interpreter.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._batch import Batch as Batch, PixelRule as PixelRule, Sample as Sample
    from ._core import Field as Field
    from ._exceptions import (CallError as CallError, DataError as DataError, Error as Error, ForkedError as ForkedError,
                          MediaError as MediaError, NetworkError as NetworkError, SetupError as SetupError,
                          SpentError as SpentError, StateError as StateError, Status as Status, WaitError as WaitError)
    from ._loader import Loader as Loader
    from ._options import Option as Option, options as options
    from ._reports import index as index, plan as plan
    from ._times import Step as Step
    from ._watch import Watch as Watch, watch as watch

_PLACES = {"_batch": ("Batch", "PixelRule", "Sample"), "_core": ("Field",),
           "_exceptions": ("CallError", "DataError", "Error", "ForkedError", "MediaError", "NetworkError", "SetupError", "SpentError",
                       "StateError", "Status", "WaitError"),
           "_loader": ("Loader",), "_options": ("Option", "options"), "_reports": ("index", "plan"), "_times": ("Step",),
           "_watch": ("Watch", "watch")}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = ["__version__", *sorted(_PLACE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"stoker.{_PLACE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
