"""Compare lexrow.train --task=recommend with implicit's ALS and BPR, on the same pairs.

    python -m tests.benchmarks.recommend --corpus=FILE --heldout=FILE --json=FILE

Every run is a process of its own, one at a time. Lexrow reads the files; implicit gets the same
pairs as arrays, which is not timed. Each side trains with its own settings, but for the columns and
the confidence of ALS (--alpha). The figures of a side:

- start to end: from the start of the process to its end, with the vectors saved. Lexrow has two
  processes, lexrow.train and lexrow.export;
- seconds of training: see the note of the report for what each side does in them;
- pairs/s over all epochs or iterations; an iteration of ALS solves for all vectors;
- recall, NDCG, hit rate, MRR and coverage over all items but the training items of a user, by
  `lexrow.tasks.recommend.ranking_metrics` from the saved vectors;
- peak memory: the most resident memory of a process, and the same without the peak of a process
  that only imports the library.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table
from tests.benchmarks.programs import OURS, Usage

PEERS = dict.fromkeys(("als", "bpr"), ("implicit", "implicit"))
MEASURES = (
    harness.TOTAL,
    Measure("train_seconds", "training, s", drawn=True),
    Measure("pairs_per_second", "pairs/s of training", ",.0f"),
    harness.PEAK,
    harness.ABOVE_IMPORT,
)
_METRICS = ("recall", "ndcg", "hit_rate", "mrr", "coverage")
_BLOCK = 256  # users whose items are ranked at a time
_FIXED = {"heldout_share": 0, "min_count": 1}  # all pairs of --corpus are trained on
_REFUSED = ("dim", "task", "heldout", "patience", "vocab", "plan_only")
NOTE = (
    "In the seconds of training: Lexrow compiles its step, and takes pairs that it read before. "
    "implicit runs `fit` on a matrix in memory."
)


def define(values: Any) -> None:
    """Define the flags of the case."""
    for name in ("train_flags", "keep"):
        harness.define(values, name)
    harness.define(values, "corpus", "", "Pairs to train on, in any layout of lexrow.train.")
    harness.define(values, "heldout", "", "Pairs to score on.")
    harness.define(values, "dim", 64, "The number of columns of a vector.")
    text = "The confidence of ALS in a pair. Its default of 1 scores badly; Hu et al. 2008 use 40."
    harness.define(values, "alpha", 10.0, text, least=0)
    harness.define(values, "top", "10,20", "Lengths k of the scored lists.", numbers=1)
    harness.define(values, "peers", "als,bpr", "Peers to run beside Lexrow.", names=PEERS)


def run(options: Any) -> Report:
    """Run every side `options.repeats` times; vectors and logs are kept only in `options.keep`."""
    from app.tasks.recommend import ranking_metrics

    with programs.session(options, PEERS, {*_FIXED, *_REFUSED}) as session:
        split, heldout = _read(options.corpus, options.heldout)

        def run_one(side: str, seed: int) -> dict[str, Any]:
            folder = session.place(side, seed)
            train = _lexrow if side == OURS else _implicit
            pairs, seconds, usages = train(side, split, folder, seed, options, session)
            vectors = (np.load(folder / f"{name}.npy") for name in ("users", "items"))
            ranker: Any = Lists(*vectors, max(options.top))
            return {
                "train_seconds": seconds,
                "pairs_per_second": pairs / seconds,
                **session.costs(side, *usages),
                **ranking_metrics.score(ranker, split.known, heldout, options.top),
            }

        sides = {side: side for side in (OURS, *options.peers)}
        runs = harness.by_turns({"": sides}, options.repeats, run_one)[""]
    sizes = {
        "users": len(split.users.tokens),
        "items": len(split.items.tokens),
        "pairs": len(split.train.users_N),
        "heldout": len(split.heldout.users_N),  # of users and items that are in training
    }
    title = ", ".join(f"{count:,} {name}" for name, count in sizes.items())
    title += f", {options.dim} columns; {harness.count_runs(options)} a side"
    names = [f"{name}@{k}" for k in options.top for name in _METRICS]
    drawn = [f"{name}@{max(options.top)}" for name in _METRICS]
    scores = [one._replace(drawn=one.key in drawn) for one in harness.scores(names, ".4f")]
    tables = [Table(runs, [*MEASURES, *scores], peers=PEERS)]
    return Report(title, session.machine, tables, {"data": sizes}, [NOTE])


def _read(train: str, heldout: str) -> tuple[Any, Any]:
    """Return the pairs by ids (`input.user_item_pairs.Split`), and the held-out items of users."""
    from app.input.user_item_pairs import group_by_user
    from app.settings import flag_values
    from app.tasks.recommend import recommend_data
    from app.text import corpus

    values = {"task": "recommend", "corpus": train, "heldout": heldout, "min_count": 1}
    config = flag_values.from_names(values)
    sources = corpus.resolve(config.corpus)
    corpus.resolve_heldout(config.corpus, heldout)  # refused before the pairs are read
    split = recommend_data.read_split(config, sources)
    return split, group_by_user(split.heldout, len(split.users.tokens))


# The pairs of all epochs or iterations, the seconds of training, and the processes.
_Trained = tuple[float, float, list[Usage]]


def _lexrow(side: str, split: Any, folder: Path, seed: int, options: Any, session) -> _Trained:
    """Train and export, and save the vectors in the order of the ids of `split`."""
    given = _FIXED | {"corpus": options.corpus, "dim": options.dim, "seed": seed}
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        given |= {"workdir": workdir}
        trained, rows = programs.train("recommend", session.train_flags, given, folder)
        output = Path(workdir) / "vectors"
        export = {"workdir": workdir, "output": output, "format": "vectors"}
        exported = programs.command(["app.export"], export, folder / "export.log")
        for name, tokens in (("users", split.users.tokens), ("items", split.items.tokens)):
            keys = (output / f"{name}.tsv").read_text(encoding="utf-8").split("\n")
            numbers = {key: row for row, key in enumerate(keys)}
            vectors = np.load(output / f"{name}.npy")[[numbers[key] for key in tokens]]
            np.save(folder / f"{name}.npy", vectors)
    return rows[-1]["pairs"], rows[-1]["train_seconds"], [trained, exported]


def _implicit(side: str, split: Any, folder: Path, seed: int, options: Any, session) -> _Trained:
    """Train a model of implicit on all cores in its own process, which saves the vectors."""
    arrays, shape = folder / "pairs.npz", (len(split.users.tokens), len(split.items.tokens))
    np.savez(arrays, users=split.train.users_N, items=split.train.items_N, shape=shape)
    settings = {"factors": options.dim, "random_state": seed, "num_threads": programs.cores()}
    settings |= {"alpha": options.alpha} if side == "als" else {}
    job = {"model": side, "pairs": str(arrays), "folder": str(folder), "settings": settings}
    figures, usage = programs.run("peers:implicit_vectors", job, folder / "train.log")
    return figures["pairs"], figures["train_seconds"], [usage]


class Lists:
    """Ranks items by inner products of vectors, in place of a `ranking_metrics.Ranker`.

    Args:
        users_UD: The vectors of the users.
        items_VD: The vectors of the items.
        k: Number of items to find for each user.
    """

    def __init__(self, users_UD: np.ndarray, items_VD: np.ndarray, k: int):
        self._users_UD, self._items_VD = users_UD, items_VD
        self.k, self.items = min(k, len(items_VD)), len(items_VD)

    def blocks(
        self, users_N: np.ndarray, known: Any
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the best items of users, without known ones; see `Ranker.blocks`."""
        for users_M in np.array_split(users_N, len(users_N) // _BLOCK + 1):
            scores_MV = self._users_UD[users_M] @ self._items_VD.T
            for row, user in enumerate(users_M):
                own = slice(known.starts_U[user], known.starts_U[user + 1])
                scores_MV[row, known.items_N[own]] = -np.inf
            ids_MK = np.argpartition(-scores_MV, self.k - 1, axis=1)[:, : self.k]
            scores_MK = np.take_along_axis(scores_MV, ids_MK, axis=1)
            order_MK = np.argsort(-scores_MK, axis=1, kind="stable")
            ids_MK, scores_MK = (
                np.take_along_axis(part, order_MK, axis=1) for part in (ids_MK, scores_MK)
            )
            yield users_M, np.where(np.isneginf(scores_MK), -1, ids_MK).astype(np.int32), scores_MK


if __name__ == "__main__":
    harness.main(define, run)
