"""Print the best items of users.

    python -m app.recommend --workdir=DIR USER…

Without users on the command line it reads them from standard input, one a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np
from absl import flags as absl_flags

from .cli import flags
from .config import settings
from .errors import UsageError


def main(users: Sequence[str]) -> None:
    """Print the best items of each known user, then fail if some users are unknown."""
    values = absl_flags.FLAGS
    stored = flags.stored_in(values.workdir)
    if stored.get("task") != "recommend":
        raise UsageError(f"--workdir={values.workdir}: no run of --task=recommend there")
    lines = (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer)
    users = users or [line for line in lines if line.strip()]
    flags.start_tensorflow()
    from .checkpoints.workdir import Workdir
    from .system import devices
    from .tasks.recommend import recommend_job
    from .tasks.recommend.ranking_metrics import Ranker

    config = settings.from_names(stored)
    devices.use_machine(config.run)
    trained = recommend_job.trained(config, Workdir(values.workdir))
    ids = {token: number for number, token in enumerate(trained.users.tokens)}
    users_N = np.array([ids[user] for user in users if user in ids], np.int32)
    ranker = Ranker(trained.model, trained.tables, values.k)
    known = None if values.include_known else trained.known
    for users_M, ids_MK, scores_MK in ranker.blocks(users_N, known):
        for user, ids_K, scores in zip(users_M, ids_MK, scores_MK.tolist(), strict=True):
            items = [trained.items.tokens[number] for number in ids_K if number >= 0]
            _print(trained.users.tokens[user], items, scores[: len(items)])
    unknown = [user for user in users if user not in ids]
    if unknown:
        names = ", ".join(map(repr, unknown[:5])) + ", …" * (len(unknown) > 5)
        raise UsageError(f"{len(unknown)} user(s) not in {values.workdir}/users.tsv: {names}")


def _print(user: str, items: list[str], scores: list[float]) -> None:
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
