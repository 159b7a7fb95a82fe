"""A value that a block of code sets for all that it calls."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Scoped(Generic[_T]):
    """A value that is another one within a block, for the thread that runs the block.

    Args:
        default: The value outside of all blocks.
    """

    def __init__(self, default: _T):
        self._variable = contextvars.ContextVar("scoped", default=default)

    def get(self) -> _T:
        """Return the value."""
        return self._variable.get()

    @contextlib.contextmanager
    def set(self, value: _T) -> Iterator[_T]:
        """Set the value within the block, which is given it."""
        token = self._variable.set(value)
        try:
            yield value
        finally:
            self._variable.reset(token)
