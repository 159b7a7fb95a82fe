"""A proposed change of a run."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A proposed change.

    Attributes:
        what: A flag with its value, a command, or a call of tf.data or Keras.
        speedup: The greatest speed to expect after the change, over the speed before it. None if
            the profile cannot tell.
        why: The reason, a sentence.
        new_workdir: Whether the change needs a new workdir, as files in it depend on the flag.
    """

    what: str
    speedup: float | None
    why: str
    new_workdir: bool = False
