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
from ...settings import RatingsConfig
from ...system.files import replacing
from ...tables import memory
from ...text.vocabulary import load_names, save_names, whole


def load_split(
    sources: Sequence[str],
    heldout: Sequence[str],
    settings: RatingsConfig,
    share: float,
    min_count: int,
    seed: int,
) -> Split:
    """Read the pairs of a run, and split them into training and held-out pairs.

    Args:
        heldout: Paths of the files of held-out pairs; empty to hold a share out.
        settings: How pairs are read and split.
        share: The share to hold out.
        min_count: The fewest pairs of a user or an item.

    Raises:
        UsageError: The files are malformed, or lack ratings that the flags need.
        RunError: A file cannot be read.
    """
    pairs = ratings.read(sources, settings)
    heldout_pairs = ratings.read(heldout, settings) if heldout else None
    if settings.weighted and pairs.ratings_N is None:
        raise UsageError("--weighted needs ratings, and the pairs have none; leave it out")
    return split_pairs(pairs, heldout_pairs, settings, share, min_count, seed)


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


def check_names(split: Split, corpus: str, workdir: Workdir) -> None:
    """Raise UsageError unless the pairs have the users and items of the workdir, in the same order.

    A workdir without names passes. Blanks around a name do not count.

    Args:
        corpus: The value of --corpus.

    Raises:
        UsageError: The names differ, as after a change in how the files are read.
    """
    for kind, current, path in (
        ("users", split.users, workdir.users),
        ("items", split.items, workdir.items),
    ):
        if not path.exists():
            continue
        # An earlier version kept blanks around names, and fractions of whole numbers.
        recorded = [whole(name.strip()) for name in load_names(path).tokens]
        if recorded != [name.strip() for name in current.tokens]:
            raise UsageError(
                f"{path} has other {kind} than --corpus={corpus}; train in a new --workdir"
            )


def memory_item(*parts: Ratings) -> memory.Item:
    """Return the host memory of pairs, twice the size of their arrays, as tf.data copies them.

    Args:
        *parts: The pairs.
    """
    arrays = [array for part in parts for array in part[2:6] if array is not None]
    count = sum(len(part.users_N) for part in parts)
    # Twice: as arrays, and as tensors for tf.data.
    return memory.Item(
        "pairs", f"{count:,}", memory.HOST, 2 * sum(array.nbytes for array in arrays)
    )


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
    count, heldout = len(split.train.users_N), len(split.heldout.users_N)
    lines = [
        (
            "pairs",
            f"{count:,} of {len(split.users.tokens):,} users and {len(split.items.tokens):,} items "
            f"in {len(sources)} file(s): {split.train.layout}",
        )
    ]
    if split.repeated:
        lines.append(("repeated", f"{split.repeated:,} repeated pairs were merged"))
    if heldout or split.left_out:
        users = len(np.unique(split.heldout.users_N))
        lines.append(
            ("held out", f"{heldout:,} pairs of {users:,} users{describe_left_out(split.left_out)}")
        )
    return lines


def describe_left_out(left_out: int) -> str:
    """Return a part of a sentence on held-out pairs that are not scored; empty if there are none.

    Args:
        left_out: The number of pairs.
    """
    why = "their user or item is not in training, or the pair is"
    return f"; {left_out:,} left out: {why}" if left_out else ""
