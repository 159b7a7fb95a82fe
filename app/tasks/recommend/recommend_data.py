"""A recommender's data side: the pairs of a run, and what is said of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...checkpoints.workdir import Workdir
from ...config import Config
from ...errors import UsageError
from ...input import pairs, ratings
from ...input.pairs import Split
from ...input.ratings import Ratings
from ...text import corpus, names
from ...training import memory_plan


def load_split(sources: Sequence[str], config: Config) -> Split:
    """The pairs of a run, with those held out. UsageError for what cannot be."""
    found = ratings.read(sources, config.ratings)
    given = read_heldout(config.input.heldout, config) if config.input.heldout else None
    predicts, weighted = config.model.loss == "squared_error", config.ratings.weighted
    if predicts and weighted:
        raise UsageError("--weighted: the ratings are what --loss=squared_error predicts")
    if (predicts or weighted) and found.ratings_N is None:
        flag = "--weighted" if weighted else "--loss=squared_error"
        raise UsageError(f"{flag} needs ratings, and the pairs have none; leave it out")
    return pairs.split_pairs(found, given, config)


def check_names(found: Split, config: Config, workdir: Workdir) -> None:
    """Refuse pairs whose users or items are not those of the rows of a workdir, in their order.

    Raises:
        UsageError: They are others, as where a version of this program read the files otherwise.
    """
    for what, now, path in (
        ("users", found.users, workdir.users),
        ("items", found.items, workdir.items),
    ):
        if not path.exists():
            continue
        # A version kept blanks around names.
        kept = [name.strip() for name in names.load(path).tokens]
        if kept != [name.strip() for name in now.tokens]:
            raise UsageError(
                f"{path} has other {what} than --corpus={config.corpus.corpus}; train in a new "
                "--workdir"
            )


def read_heldout(files: str, config: Config) -> Ratings:
    """The pairs of some files, named as by --corpus."""
    named = dataclasses.replace(config.corpus, corpus=files)
    return ratings.read(corpus.resolve(named, flag="heldout"), config.ratings)


def memory_item(*parts: Ratings) -> memory_plan.Item:
    """What pairs take of the host's memory."""
    arrays = [array for part in parts for array in part[2:6] if array is not None]
    count = sum(len(part.users_N) for part in parts)
    # Twice: as they were read, and as batches are made of them.
    return memory_plan.Item(
        "pairs", f"{count:,}", memory_plan.HOST, 2 * sum(array.nbytes for array in arrays)
    )


def about(found: Split, sources: Sequence[str]) -> list[tuple[str, str]]:
    """What the banner tells of them."""
    count, heldout = len(found.train.users_N), len(found.heldout.users_N)
    told = [
        (
            "pairs",
            f"{count:,} of {len(found.users.tokens):,} users and {len(found.items.tokens):,} items "
            f"in {len(sources)} file(s): {found.train.layout}",
        )
    ]
    if found.repeated:
        told.append(("repeated", f"{found.repeated:,} pairs came more than once: taken as one"))
    if heldout or found.left_out:
        users = len(np.unique(found.heldout.users_N))
        told.append(
            ("held out", f"{heldout:,} pairs of {users:,} users{describe_left_out(found.left_out)}")
        )
    return told


def describe_left_out(left_out: int) -> str:
    """How many pairs held out are not scored, as a part of a sentence; empty if none."""
    return f"; {left_out:,} left out, of users or items never seen, or known" if left_out else ""
