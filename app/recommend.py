"""Print the best items of users.

    python -m app.recommend --workdir=DIR USER…

Without users on the command line it reads them from standard input, one a line.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
from absl import flags as absl_flags

from .cli import flags, startup
from .errors import UsageError
from .system.files import bounded_lines

_USERS = 1 << 16  # that are answered at a time, so that a list without an end takes no more memory
_SHOWN = 5  # of the users that are not known


def main(users: Sequence[str]) -> None:
    """Print the best items of each known user, then raise UsageError if some users are unknown.

    Items that the user has in the training pairs are left out, unless --include_known is given.

    Args:
        users: The names of users; if there are none, they are read from standard input.

    Raises:
        UsageError: The workdir has no recommender, or at the end: some users are unknown.
        RunError: There is no checkpoint that can be read.
    """
    values = absl_flags.FLAGS
    stored = flags.stored_in(values.workdir)
    if stored.get("task") != "recommend":
        raise UsageError(f"--workdir={values.workdir}: no run of --task=recommend there")
    run = startup.start_run(values.workdir, stored)
    from .tasks.recommend import recommend_model
    from .tasks.recommend.ranking_metrics import Ranker

    trained = recommend_model.load_recommender(*run)
    ids = {token: number for number, token in enumerate(trained.users.tokens)}
    ranker = Ranker(trained.model, trained.tables, values.k)
    known = None if values.include_known else trained.known
    asked = iter(users) if users else _lines(sys.stdin.buffer)
    unknown = 0
    shown: list[str] = []
    while group := list(itertools.islice(asked, _USERS)):
        users_N = np.array([ids[user] for user in group if user in ids], np.int32)
        for users_M, ids_MK, scores_MK in ranker.blocks(users_N, known):
            for user, ids_K, scores in zip(users_M, ids_MK, scores_MK.tolist(), strict=True):
                items = [trained.items.tokens[number] for number in ids_K if number >= 0]
                _print(trained.users.tokens[user], items, scores[: len(items)])
        others = [user for user in group if user not in ids]
        unknown += len(others)
        shown = [*shown, *others][:_SHOWN]
    if unknown:
        names = ", ".join(map(repr, shown)) + ", …" * (unknown > _SHOWN)
        raise UsageError(f"{unknown} user(s) not in {values.workdir}/users.tsv: {names}")


def _lines(file: BinaryIO) -> Iterator[str]:
    """Yield the users that a file names, a line each; skip blank lines.

    Bytes that are no UTF-8 become U+FFFD. Of a name only the line end is cut.

    Raises:
        UsageError: A line is longer than any name.
    """
    for _, line in bounded_lines(file, "standard input", "users, one in each line"):
        user = line.decode(errors="replace").rstrip("\r\n")
        if user.strip():
            yield user


def _print(user: str, items: list[str], scores: list[float]) -> None:
    """Print a user and the items with their scores, as text or (--json) as one JSON object."""
    if absl_flags.FLAGS.json:
        print(json.dumps({"user": user, "items": items, "scores": scores}))
        return
    print(user)
    for item, score in zip(items, scores, strict=True):
        print(f"  {score:.3f}  {item}")


def define() -> None:
    """Define the flags of this command."""
    absl_flags.DEFINE(flags.Paths(), "workdir", "", "The folder of a run of --task=recommend.")
    absl_flags.DEFINE(flags.count(1), "k", 10, "The number of items to print for each user.")
    text = "Print items that the user has in the training pairs as well."
    absl_flags.DEFINE_bool("include_known", False, text)
    absl_flags.DEFINE_bool("json", False, "Print a JSON object a line instead of text.")


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
