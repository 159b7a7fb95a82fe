"""Load the pairs of users and items of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import ratings
from ...input.ratings import Ratings
from ...input.user_item_pairs import Split, split_pairs
from ...settings import RecommendConfig
from ...system.files import replacing
from ...tables import memory
from ...text import corpus
from ...text.vocabulary import load_names, save_names, whole


def read_split(config: RecommendConfig, sources: Sequence[str]) -> Split:
    """Read the pairs of a run, and split them into training and held-out pairs.

    Raises:
        UsageError: The files are malformed, or lack ratings that the flags need.
        RunError: A file cannot be read.
    """
    settings, given = config.ratings, config.input.heldout
    pairs, heldout = ratings.read(sources, settings), None
    if given:
        heldout = ratings.read(corpus.resolve_heldout(config.corpus, given), settings)
    if settings.weighted and pairs.ratings_N is None:
        raise UsageError("--weighted needs ratings, and the pairs have none; leave it out")
    rules = config.input.heldout_share, config.vocabulary.min_count, config.run.seed
    return split_pairs(pairs, heldout, settings, *rules)


def warn_about_negative_ratings(split: Split, min_rating: str) -> None:
    """Log a warning if pairs with a rating below 0 count as chosen, unless --min_rating is given.

    Args:
        min_rating: The value of the flag.
    """
    parts = [part.ratings_N for part in (split.train, split.heldout) if part.ratings_N is not None]
    negative = sum(int((ratings_N < 0).sum()) for ratings_N in parts)
    if negative and not min_rating:
        logging.warning(
            "%d pairs have a rating below 0, and count as chosen like all others; leave them out "
            "with --min_rating=0",
            negative,
        )


def check_names(split: Split, files_named: str, workdir: Workdir) -> None:
    """Raise UsageError unless the pairs have the users and items of the workdir, in the same order.

    A workdir without names passes. Blanks around a name do not count.

    Args:
        files_named: The value of --corpus.

    Raises:
        UsageError: The names differ, as after a change in how the files are read.
    """
    for current, path in ((split.users, workdir.users), (split.items, workdir.items)):
        if not path.exists():
            continue
        # An earlier version kept blanks around names, and fractions of whole numbers.
        recorded = [whole(name.strip()) for name in load_names(path).tokens]
        if recorded != [name.strip() for name in current.tokens]:
            other = f"other {path.stem} than --corpus={files_named}"
            raise UsageError(f"{path} has {other}; train in a new --workdir")


def memory_item(*parts: Ratings) -> memory.Item:
    """Return the host memory of pairs, twice the size of their arrays, as tf.data copies them."""
    size = sum(array.nbytes for part in parts for array in part[2:6] if array is not None)
    count = sum(len(part.users_N) for part in parts)
    return memory.Item("pairs", f"{count:,}", memory.HOST, 2 * size)


def record(split: Split, fingerprint: dict[str, Any], mean: float, workdir: Workdir) -> None:
    """Write the names of ids, the known items, the fingerprint and the mean to the workdir.

    Args:
        fingerprint: The fingerprint of the corpus (see `corpus.fingerprint`).
        mean: Mean rating, which the model adds to its scores.
    """
    files.write_json(workdir.corpus, {"fingerprint": fingerprint, "mean": mean})
    save_names(split.users, workdir.users)
    save_names(split.items, workdir.items)
    with replacing(workdir.known) as temporary, open(temporary, "wb") as file:
        np.savez(file, **split.known._asdict())


def about(split: Split, sources: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines of the banner about the pairs: a title and a text each."""
    pairs = f"{len(split.train.users_N):,} of {len(split.users.tokens):,} users"
    items = f"{len(split.items.tokens):,} items in {len(sources)} file(s): {split.train.layout}"
    lines = [("pairs", f"{pairs} and {items}")]
    if split.repeated:
        lines.append(("repeated", f"{split.repeated:,} repeated pairs were merged"))
    if len(split.heldout.users_N) or split.left_out:
        heldout, users = len(split.heldout.users_N), len(np.unique(split.heldout.users_N))
        shown = f"{heldout:,} pairs of {users:,} users{describe_left_out(split.left_out)}"
        lines.append(("held out", shown))
    return lines


def describe_left_out(left_out: int) -> str:
    """Return a part of a sentence on held-out pairs that are not scored; empty if there are none.

    Args:
        left_out: The number of pairs.
    """
    why = "their user or item is not in training, or the pair is"
    return f"; {left_out:,} left out: {why}" if left_out else ""
