"""Exceptions: what the library says, in words and in parts."""
from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """How a call of the library ended (``stoker/status.h``); numbers have gaps by group and never change."""

    ERR_NOMEM = -1
    ERR_SYSTEM = -2
    ERR_FORKED = -3
    ERR_INTERRUPTED = -4
    ERR_USAGE = -5
    ERR_TIMEOUT = -6
    ERR_OPTION = -20
    ERR_MODEL = -21
    ERR_STATE = -22
    ERR_BUDGET = -23
    ERR_INDEX = -24
    ERR_KEEP = -25
    ERR_MANIFEST = -30
    ERR_RECORD = -31
    ERR_MEDIA = -40
    ERR_MEDIA_MISSING = -41
    ERR_MEDIA_LIMIT = -42
    ERR_MEDIA_UNSUPPORTED = -43
    ERR_MEDIA_DENIED = -44
    ERR_SPENT = -50
    ERR_NETWORK = -60


class Error(Exception):
    """Anything that Stoker refuses or fails at.

    Attributes
    ----------
    status : Status or int
        Which kind of failure.
    message : str
        One sentence, and what to do.
    stage : str
        Where in the way of the data: "options", "index", "fetch", "decode", ...; "none".
    code : int
        errno or HTTP status; 0 if neither.
    sample : str or None
        The sample that is meant, ``"chatvqa/33471"``.
    file : str or None
        Manifest, medium or configuration.
    line : int or None
        In ``file``, from 1.
    """

    def __init__(self, message: str = "", status: int = 0, stage: str = "none", code: int = 0, line: int | None = None,
                 sample: str | None = None, file: str | None = None) -> None:
        super().__init__(message, status, stage, code, line, sample, file)  # so that it can be pickled
        self.message, self.status, self.stage, self.code = message, status, stage, code
        self.line, self.sample, self.file = line, sample, file

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return place + (f"sample {self.sample}: " if self.sample else "") + self.message


class CallError(Error):
    """The call itself: memory, the operating system, arguments, waiting (-1 to -19)."""


class ForkedError(CallError, RuntimeError):
    """The loader or batch belongs to the parent process."""


class WaitError(CallError, TimeoutError):
    """What was waited for did not come in time (option ``timeout``)."""


class SetupError(Error, ValueError):
    """Options, checkpoint folder, state, memory budget, index, ``keep`` (-20 to -29)."""


class StateError(SetupError):
    """The state cannot be loaded: it is none, or of another run."""


class DataError(Error, ValueError):
    """Manifests and records (-30 to -39)."""


class MediaError(DataError):
    """Pictures and other media (-40 to -49)."""


class SpentError(DataError):
    """Too many samples of a data set are broken (-50 to -59)."""


class NetworkError(Error, OSError):
    """A store did not answer as it should (-60 to -69)."""


_BY_STATUS: dict[int, type[Error]] = {Status.ERR_FORKED: ForkedError, Status.ERR_TIMEOUT: WaitError, Status.ERR_STATE: StateError}
_BY_GROUP: dict[int, type[Error]] = {0: CallError, 1: CallError, 2: SetupError, 3: DataError, 4: MediaError, 5: SpentError,
                                     6: NetworkError}


def make(status: int, message: str, stage: str, code: int, line: int, sample: str, file: str) -> Error:
    """The exception for an error of the library, whose empty parts are "" and 0."""
    kind = _BY_STATUS.get(status) or _BY_GROUP.get(-status // 10, Error)
    known = Status(status) if status in Status._value2member_map_ else status
    return kind(message, known, stage, code, line or None, sample or None, file or None)
