"""Let the processes of a team make a part each, and fail together if one of them fails."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import numpy as np

from ..errors import RunError, UsageError
from ..types import Team

# The first byte of a message: that of a part, or of an error of this class.
_PART = b"p"
_ERRORS: dict[bytes, type[Exception]] = {b"r": RunError, b"u": UsageError}


def gather_parts(team: Team, make: Callable[[], bytes]) -> list[bytes]:
    """Return the result of `make` in each process; all processes of the team call this together.

    Raises:
        UsageError: `make` raised it in some process; all processes raise the first such error.
        RunError: The same for RunError.
    """
    try:
        message = _PART + make()
    except (RunError, UsageError) as error:
        kind = next(kind for kind, known in _ERRORS.items() if isinstance(error, known))
        message = kind + str(error).encode()
    messages = team.gather(message)
    for answer in messages:
        if answer[:1] in _ERRORS:
            raise _ERRORS[answer[:1]](answer[1:].decode())
    return [answer[1:] for answer in messages]


def gather_arrays(
    team: Team, make: Callable[[], dict[str, np.ndarray]]
) -> list[dict[str, np.ndarray]]:
    """Return the arrays that `make` returns in each process, by name; see `gather_parts`."""

    def encode() -> bytes:
        """Return the arrays of this process as bytes."""
        file = io.BytesIO()
        np.savez(file, **make())
        return file.getvalue()

    return [dict(np.load(io.BytesIO(part))) for part in gather_parts(team, encode)]


def join_tokens(tokens: Iterable[bytes]) -> np.ndarray:
    """Return tokens as an array of bytes, for `gather_arrays`; none is empty or has a line end."""
    return np.frombuffer(b"\n".join(tokens), np.uint8)


def split_tokens(joined: np.ndarray) -> list[bytes]:
    """Return the tokens that `join_tokens` joined."""
    return joined.tobytes().split(b"\n") if joined.size else []
