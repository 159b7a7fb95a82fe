"""Print the best items of users.

    lexrow recommend --workdir=DIR USER…
    lexrow recommend --workdir=DIR --items=ITEM,ITEM… [--disliked=ITEM,ITEM…]
    lexrow recommend --workdir=DIR --add_items=FILE [--add_users=FILE] [USER…]

A user whose name begins with `-` comes after `--`. Without users or items on the command line it
reads users from standard input, one a line. With items it answers for a user who was not in
training and chose these items; items that are not known are named and left out.

A run that was trained with features of items takes more items by theirs, and keeps them; users
likewise. Without users on the command line, they are only added.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from absl import flags as absl_flags

from .checkpoints.workdir import read_settings
from .cli import flags, startup
from .errors import UsageError
from .settings.setting import MOST_ROWS
from .system.console import note_terminal
from .text.reading import bounded_lines

if TYPE_CHECKING:
    from .tasks.recommend.ranking_metrics import Ranker
    from .tasks.recommend.recommend_model import TrainedRecommender
    from .text.vocabulary import Vocabulary

_USERS = 1 << 16  # that are answered at a time, so that a list without an end takes no more memory
_SHOWN = 5  # of the users that are not known, as in `new_users`


def main(users: Sequence[str]) -> None:
    """Print the best items of each known user, then raise UsageError if some users are unknown.

    Items that the user has in the training pairs are left out, unless --include_known is given.

    Args:
        users: The names of users; if there are none, they are read from standard input, unless
            --items, --items_file, --add_items or --add_users is given.

    Raises:
        UsageError: The workdir has no recommender, the items of a new user cannot be used or leave
            no other item, users or items cannot be added, or at the end: some users are unknown.
        RunError: There is no checkpoint that can be read.
    """
    values = absl_flags.FLAGS
    new_items = _new_items(users)
    run = startup.start_run(values.workdir, read_settings(values.workdir), "recommend")
    from .tasks.recommend import recommend_data, recommend_model
    from .tasks.recommend.ranking_metrics import Ranker
    from .text.vocabulary import whole

    more = {"user": values.add_users, "item": values.add_items}
    given = {kind: path for kind, path in more.items() if path}
    if given and not users and new_items is None:
        recommend_data.add(run[0].ratings, run[1], given)
        print("\n".join(f"{path}: added to {values.workdir}" for path in given.values()))
        return
    trained = recommend_model.load_recommender(*run)
    if given:
        if not values.add_users:
            _check_known(users, trained.users)
        added = recommend_data.add(run[0].ratings, run[1], given)
        trained = recommend_model.extend(trained, run[0], added, run[1])
    ranker = Ranker(trained.model, trained.tables, values.k)
    if new_items is not None:
        _answer_new_user(trained, ranker, new_items)
        return
    ids = {token: number for number, token in enumerate(trained.users.tokens)}
    known = None if values.include_known else trained.known
    if not users:
        note_terminal("users")
    asked = (user if user in ids else whole(user) for user in users or _lines(sys.stdin.buffer))
    unknown = 0
    shown: list[str] = []  # some of them
    while group := list(itertools.islice(asked, _USERS)):
        users_N = np.array([ids[user] for user in group if user in ids], np.int32)
        for users_M, ids_MK, scores_MK in ranker.blocks(users_N, known):
            for user, ids_K, scores_K in zip(users_M, ids_MK, scores_MK, strict=True):
                items = [trained.items.tokens[item] for item in ids_K if item >= 0]
                _print(trained.users.tokens[user], items, scores_K.tolist()[: len(items)])
        others = [user for user in group if user not in ids]
        unknown += len(others)
        shown += others[: _SHOWN + 1 - len(shown)]  # one more lets a message end in "…"
    if unknown:
        raise _unknown(unknown, shown, trained.users)


def _check_known(users: Sequence[str], known: Vocabulary) -> None:
    """Raise UsageError if some users are unknown."""
    from .text.vocabulary import whole

    names = {*known.tokens}
    if unknown := [user for user in users if not {user, whole(user)} & names]:
        raise _unknown(len(unknown), unknown, known)


def _unknown(count: int, shown: Sequence[str], known: Vocabulary) -> UsageError:
    """Return the error for a number of unknown users, of which some are shown."""
    from .tasks.recommend import new_users

    found = new_users.explain_unknown(shown, known, f"--workdir={absl_flags.FLAGS.workdir}")
    return UsageError(
        f"{count} user(s) {found}; give users of it, or the items of a new user by --items"
    )


def _answer_new_user(trained: TrainedRecommender, ranker: Ranker, items: list[str]) -> None:
    """Print the best items of a user who chose some items, and dislikes those of --disliked."""
    from .tasks.recommend import new_users

    values = absl_flags.FLAGS
    flag = "--items_file" if values.items_file else "--items"
    where, disliked_N = f"--workdir={values.workdir}", np.zeros(0, np.int32)
    chosen_N = new_users.parse_items(items, trained.items, flag, where)
    if values.disliked:
        names = _split(values.disliked)
        disliked_N = new_users.parse_items(names, trained.items, "--disliked", where)
    how = chosen_N, disliked_N, values.include_known
    best = new_users.rank_items(trained, ranker, *how)
    if not best:
        raise UsageError(
            f"{flag} names all {len(trained.items.tokens):,} items, so no item is left; name "
            "fewer, or give --include_known"
        )
    _print(None, *zip(*best, strict=True))


def _new_items(users: Sequence[str]) -> list[str] | None:
    """Return the items of --items or --items_file; None if neither is given.

    Raises:
        UsageError: Both are given, or one of them beside users, or the file cannot be read.
    """
    values = absl_flags.FLAGS
    if values.items is None and not values.items_file:
        if values.disliked:
            raise UsageError(
                f"--disliked={values.disliked}: means nothing without --items; leave it out"
            )
        return None
    if users or (values.items is not None and values.items_file):
        raise UsageError("--items: give users, or --items, or --items_file; only one of them")
    if values.items is not None:
        return _split(values.items)
    try:
        with open(values.items_file, "rb") as file:
            return list(_lines(file, f"--items_file={values.items_file}", "items"))
    except OSError as error:
        message = f"--items_file={values.items_file}: {error.strerror}; name a file of items"
        raise UsageError(message) from error


def _split(names: str) -> list[str]:
    """Return the names between commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def _lines(file: BinaryIO, path: str = "standard input", content: str = "users") -> Iterator[str]:
    """Yield the users or items that a file names, a line each; skip blank lines.

    Bytes that are no UTF-8 become U+FFFD. Of a name only the line end is cut.

    Raises:
        UsageError: A line is longer than any name.
    """
    for _, line in bounded_lines(file, path, f"{content}, one in each line"):
        name = line.decode(errors="replace").rstrip("\r\n")
        if name.strip():
            yield name


def _print(user: str | None, items: Sequence[str], scores: Sequence[float]) -> None:
    """Print a user and the items with their scores, as text or (--json) as one JSON object.

    Args:
        user: The name of the user; None for one who was not in training.
    """
    if absl_flags.FLAGS.json:
        print(json.dumps({"user": user, "items": items, "scores": scores}))
        return
    if user is not None:
        print(user)
    for item, score in zip(items, scores, strict=True):
        print(f"  {score:.3f}  {item}")


def define() -> None:
    """Define the flags of this command."""
    flags.define("workdir", "", "The folder of a run of --task=recommend.", path=True)
    text = "The number of items to print for each user."
    flags.define("k", 10, text, bounds=(1, MOST_ROWS))
    absl_flags.DEFINE_string(
        "items", None, "Items, with commas between them, of a user who was not in training."
    )
    text = "The file of the items of a user who was not in training, one in each line."
    flags.define("items_file", "", text, path=True)
    text = "Items, with commas between them, that the user of --items dislikes."
    flags.define("disliked", "", text)
    text = "A file of features of items to add to the run, as --item_features of `lexrow train`."
    flags.define("add_items", "", text, path=True)
    text = "A file of features of users to add to the run, as --user_features of `lexrow train`."
    flags.define("add_users", "", text, path=True)
    text = "Print items that the user has in the training pairs as well."
    flags.define("include_known", False, text)
    flags.define("json", False, "Print a JSON object a line instead of text.")


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
