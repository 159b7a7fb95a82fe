"""The parsers of flags that are numbers."""

from __future__ import annotations

import math

from absl import flags

from ..settings import settings


class Integer(flags.IntegerParser):
    """A parser of a whole number between two bounds."""

    def convert(self, argument: str) -> int:
        """Return the number; raise ValueError, with the remedy, if the text is no whole number."""
        try:
            return super().convert(argument)
        except ValueError:  # Python reads at most 4,300 digits
            is_long = argument.strip().lstrip("+-").isdecimal()
            raise ValueError(f"give a {'smaller' if is_long else 'whole'} number") from None


class Float(flags.FloatParser):
    """A parser of a number between two bounds; with a lower bound it refuses NaN."""

    def convert(self, argument: str) -> float:
        """Return the number; raise ValueError, with the remedy, if the text is no number."""
        try:
            return super().convert(argument)
        except ValueError:
            raise ValueError("give a number") from None

    def is_outside_bounds(self, val: float) -> bool:
        """Return whether the value is outside of the bounds; NaN is, if there is a lower bound."""
        return super().is_outside_bounds(val) or (self.lower_bound is not None and math.isnan(val))


def count(least: int) -> Integer:
    """Return a parser of whole numbers from `least` to `settings.MOST_ROWS`."""
    return Integer(least, settings.MOST_ROWS)
