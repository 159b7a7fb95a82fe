"""Compare lexrow.train --task=recommend with implicit's ALS and BPR, EASE and cosines of items.

Every run is a process of its own, one at a time. Lexrow reads the files; implicit gets the same
pairs as arrays, which is not timed. Each side trains with its own settings, but for the columns and
the confidence of ALS (--alpha), and saves the vectors of users and items. EASE and cosines of items
have a matrix of items and items instead, and save the lists of all users (see `closed_form`). The
figures of a side:

- recall, NDCG, hit rate, MRR and coverage over all items but the training items of a user,
  by `lexrow.tasks.recommend.ranking_metrics` from the saved vectors;
- seconds of training: of the loop, with TensorFlow's compilation; of `fit` of implicit;
- pairs/s over all epochs or iterations; an iteration of ALS solves for all vectors;
- seconds end to end: from the start of the process to its end, with the vectors saved. Lexrow has
  two processes, lexrow.train and lexrow.export;
- peak memory: the most resident memory of a process, and the same without the peak of a process
  that only imports the library.

One more training of Lexrow leaves out some users (--new_users). The report then has the metrics of
these users with rows that are solved for, beside those with the rows of the first run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import __name__ as PACKAGE
from ..harness import machine, programs, report, trainer, trials
from ..harness.option_values import numbers
from ..harness.options import RecommendOptions
from ..harness.report import Measure, Result
from ..harness.trainer import OURS, Peer

if TYPE_CHECKING:
    from .recommend_ratings import Data

_METRICS = ("recall", "ndcg", "hit_rate", "mrr", "coverage")
_DRAWN = ("recall", "ndcg", "coverage")  # for the longest lists
_FIXED = {
    "task": "recommend",
    "heldout": "",
    "heldout_share": 0,
    "patience": 0,
    "vocab": "",
    "min_count": 1,
    "plan_only": False,
}


class Job(NamedTuple):
    """One run of one side.

    Attributes:
        folder: The folder for users.npy, items.npy and logs.
        data: The pairs to train on and to score.
        dim: Columns of a vector.
        alpha: The confidence of ALS in a pair.
        regularization: The L2 penalty of EASE.
        k: The length of the longest list.
        seed: The seed of the side.
        train_flags: Further flags of lexrow.train.
    """

    folder: Path
    data: Data
    dim: int
    alpha: float
    regularization: float
    k: int
    seed: int
    train_flags: list[str]


def run(options: RecommendOptions) -> Result:
    """Run every side `options.repeats` times.

    The vectors and logs are kept only in `options.keep`.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A peer, a file or a flag is not possible.
        RunError: A side failed.
    """
    from . import recommend_ratings

    sides = trainer.sides(options.peers, _PEERS, "recommend")
    tops = numbers(options.top)
    train_flags = trainer.flags(options.train_flags, {*_FIXED, "dim", "seed", "corpus", "workdir"})
    described, bare = trainer.measure_imports(sides, _PEERS)
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        arrays = Path(scratch) / "pairs.npz"
        data = recommend_ratings.read(options.corpus, options.heldout, arrays)

        def run_one(side: str, repeat: int) -> dict[str, Any]:
            """Train a side with seed `repeat + 1`, and return its figures with the metrics."""
            folder = Path(options.keep or scratch) / f"{side}-{repeat + 1}"
            folder.mkdir(exist_ok=True)
            strengths = options.alpha, options.regularization
            job = Job(folder, data, options.dim, *strengths, max(tops), repeat + 1, train_flags)
            values = SIDES[side](job)
            above = values["peak_bytes"] - bare[side].peak_bytes
            speed = values.pop("pairs") / values["train_seconds"]
            more = {"pairs_per_second": speed, "peak_bytes_above_import": above}
            return values | more | recommend_ratings.score(folder, data, tops)

        runs = trials.alternate(sides, options.repeats, run_one)
        left_out = _leave_out(options, data, train_flags, Path(options.keep or scratch), tops)
    table = report.make_table(runs, _measures(tops))
    sizes = _sizes(data)
    figures = {
        "data": sizes,
        "imports": {
            "tensorflow" if side == OURS else _PEERS[side].module: usage._asdict()
            for side, usage in bare.items()
        },
        **report.sides_record(table),
        **left_out,
    }
    note = (
        f"{sizes['heldout']:,} held-out pairs, without {sizes['heldout_left_out']:,} of users or "
        "items that are not in training"
    )
    title = (
        f"{sizes['pairs']:,} pairs of {sizes['users']:,} users and {sizes['items']:,} items, "
        f"{options.dim} columns; {options.count_runs()} a side"
    )
    return Result(
        "recommend",
        title,
        described,
        {"dim": options.dim, "alpha": options.alpha, "train_flags": train_flags},
        [table],
        figures,
        report.make_panels(table),
        [note, *_describe_left_out(left_out, tops)],
    )


def _sizes(data: Data) -> dict[str, int]:
    """Return the numbers of users, items and pairs, by name."""
    split = data.split
    return {
        "users": len(split.users.tokens),
        "items": len(split.items.tokens),
        "pairs": len(split.train.users_N),
        "heldout": len(split.heldout.users_N),
        "heldout_left_out": split.left_out,
    }


def _leave_out(
    options: RecommendOptions, data: Data, train_flags: list[str], folder: Path, tops: list[int]
) -> dict[str, Any]:
    """Return the metrics of users who were in training, and of the same users left out of it.

    The vectors of the users who were in training are those of the first run of Lexrow.
    """
    from . import left_out_users, recommend_ratings

    users_M = left_out_users.choose(data, options.new_users)
    if not len(users_M):
        return {}
    others = folder / "others.csv"
    left_out_users.write_others(data, users_M, others)
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        named = {"corpus": others, "dim": options.dim, "seed": 1, "workdir": workdir}
        columns = {"user_column": "user", "item_column": "item"}
        settings = _FIXED | named | columns
        trainer.train("recommend", train_flags, settings, folder / "others.log")
        solved = left_out_users.score(workdir, data, users_M, tops)
    of_users = left_out_users.select_heldout(data, users_M)
    trained = recommend_ratings.score(folder / f"{OURS}-1", of_users, tops)
    return {"left_out_users": {"trained": trained, "solved": solved}}


def _describe_left_out(figures: dict[str, Any], tops: Sequence[int]) -> list[str]:
    """Return a sentence with the recall and NDCG of the users who were left out, if any were."""
    if not figures:
        return []
    trained, solved = figures["left_out_users"].values()
    values = "; ".join(
        f"{name}@{tops[-1]} {solved[f'{name}@{tops[-1]}']:.4f} solved for, "
        f"{trained[f'{name}@{tops[-1]}']:.4f} trained"
        for name in ("recall", "ndcg")
    )
    return [f"{solved['users']:,} users left out of training: {values}"]


def _measures(tops: Sequence[int]) -> list[Measure]:
    """Return the measures: each metric for each length in `tops`, then times and memory.

    Of the metrics, pictures show three for the last length.
    """
    return [
        *(
            report.score_measure(f"{name}@{k}", ".4f", drawn=k == tops[-1] and name in _DRAWN)
            for k in tops
            for name in _METRICS
        ),
        Measure("train_seconds", "training, s", ",.1f", better="lower", drawn=True),
        Measure("pairs_per_second", "pairs/s of training", ",.0f", better="higher"),
        Measure("total_seconds", "end to end, s", ",.1f", better="lower", drawn=True),
        Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower"),
        trainer.ABOVE_IMPORT,
    ]


def _lexrow(job: Job) -> dict[str, Any]:
    """Train and export, and save the vectors in the order of the ids of `job.data`.

    A user or an item that the export lacks is a KeyError.
    """
    named = {"corpus": job.data.corpus, "dim": job.dim, "seed": job.seed}
    with tempfile.TemporaryDirectory(prefix="lexrow-run-") as workdir:
        settings = _FIXED | named | {"workdir": workdir}
        log = job.folder / "train.log"
        trained, metrics = trainer.train("recommend", job.train_flags, settings, log)
        output = Path(workdir) / "vectors"
        export = {"workdir": workdir, "output": output, "format": "vectors"}
        exported = trainer.run([f"{PACKAGE}.export"], export, job.folder / "export.log")
        split = job.data.split
        for name, tokens in (("users", split.users.tokens), ("items", split.items.tokens)):
            keys = (output / f"{name}.tsv").read_text(encoding="utf-8").split("\n")
            rows = {key: row for row, key in enumerate(keys)}
            vectors = np.load(output / f"{name}.npy")[[rows[key] for key in tokens]]
            np.save(job.folder / f"{name}.npy", vectors)
    return {
        "pairs": metrics[-1]["pairs"],
        "train_seconds": metrics[-1]["train_seconds"],
        "total_seconds": trained.seconds + exported.seconds,
        "peak_bytes": max(trained.peak_bytes, exported.peak_bytes),
    }


def _implicit(model: str, job: Job, **settings: Any) -> dict[str, Any]:
    """Train a model of implicit on all cores in its own process, which saves the vectors.

    `settings` are further ones of the model. Returns the figures that `_lexrow` returns.
    """
    common = {"factors": job.dim, "random_state": job.seed, "num_threads": machine.cores()}
    spec = {
        "model": model,
        "pairs": str(job.data.arrays),
        "settings": common | settings,
        "folder": str(job.folder),
    }
    program, log = "recommend.implicit_ranking", job.folder / "train.log"
    values, usage = programs.run(model, program, spec, log)
    return values | {"total_seconds": usage.seconds, "peak_bytes": usage.peak_bytes}


def _closed_form(model: str, job: Job) -> dict[str, Any]:
    """Solve for a model of items and items in its own process, which saves the lists of all users.

    Returns the figures that `_lexrow` returns; the end-to-end time includes the ranking.
    """
    spec = {
        "model": model,
        "pairs": str(job.data.arrays),
        "regularization": job.regularization,
        "k": job.k,
        "folder": str(job.folder),
    }
    log = job.folder / "train.log"
    values, usage = programs.run(model, "recommend.closed_form", spec, log)
    return values | {"total_seconds": usage.seconds, "peak_bytes": usage.peak_bytes}


SIDES: dict[str, Callable[[Job], dict[str, Any]]] = {
    OURS: _lexrow,
    "als": lambda job: _implicit("als", job, alpha=job.alpha),
    "bpr": lambda job: _implicit("bpr", job),
    "ease": lambda job: _closed_form("ease", job),
    "cosine": lambda job: _closed_form("cosine", job),
}
_PEERS = {
    "als": Peer("implicit", "implicit"),
    "bpr": Peer("implicit", "implicit"),
    "ease": Peer("scipy", "scipy"),
    "cosine": Peer("scipy", "scipy"),
}
