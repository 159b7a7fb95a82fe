"""--task=recommend: items for users, from the pairs of both that are known."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ... import __name__ as PACKAGE
from ...build import placing, storage, updates
from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...config import Config, CorpusConfig
from ...config.settings import is_number
from ...errors import RunError, UsageError
from ...exporting import word2vec
from ...input import pairs
from ...input.pairs import Known, Pairs
from ...input.ratings import Ratings
from ...models.factorization import ItemBiased, MatrixFactorization, Scorer
from ...models.neural_filtering import Gmf, Mlp, NeuMf
from ...models.recommender import Recommender, log_expected
from ...system import devices
from ...system.checked_files import damaged
from ...system.files import replacing
from ...tables.arrays import read_npz
from ...tables.base import Table
from ...text import corpus, names
from ...text.vocabulary import Vocabulary
from ...training.job import Job
from ...types import WordVectors
from . import item_export as exported
from . import ranking_metrics, recommend_data
from .ranking_metrics import Ranker

_CORPUS = {"fingerprint": dict, "mean": float}  # the shape of corpus.json


class Trained(NamedTuple):
    """A recommender of a workdir: its model and tables, the names of ids, and what users know."""

    model: Recommender
    tables: Mapping[str, Table]
    users: Vocabulary
    items: Vocabulary
    known: Known


def job(config: Config, workdir: Workdir, finished: bool) -> Job:
    """Everything to train a recommender with. UsageError for flags that do not go together.

    finished: whether all epochs that the workdir was asked for are done.
    """
    tops = lengths(config)
    if config.corpus.corpus == CorpusConfig().corpus:
        raise UsageError(f"--corpus={config.corpus.corpus}: name files of users and their items")
    sources = corpus.resolve(config.corpus)
    before = files.read_json(workdir.corpus, _CORPUS) if workdir.has(workdir.corpus) else None
    known = before and before["fingerprint"]
    fingerprint = corpus.recognize(sources, known) if known else corpus.fingerprint(sources)
    if fingerprint is None:
        raise UsageError(
            f"--corpus={config.corpus.corpus} is not what --workdir={config.run.workdir} was made "
            "with; give that, or a new --workdir"
        )
    found = recommend_data.split(sources, config)
    recommend_data.check_names(found, config, workdir)
    train, heldout = found.train, found.heldout
    mean = float(train.ratings_N.mean()) if config.model.loss == "squared_error" else 0.0
    model = _model(config, found.users, found.items, mean)
    optimizer = updates.optimizer(config.optimizer)
    batches = pairs.batches(train, config.ratings.weighted, config.run.seed, config.input)
    size = [config.input.micro_tokens]
    spec = Pairs(*(tf.TensorSpec(size, dtype) for dtype in (tf.int32,) * 2 + (tf.float32,) * 2))
    stored = placing.place(
        model,
        batches,
        spec,
        config,
        optimizer,
        workdir,
        others=[recommend_data.item(train, heldout)],
    )

    def record() -> None:
        files.write_json(workdir.corpus, {"fingerprint": fingerprint, "mean": mean})
        names.save(found.users, workdir.users)
        names.save(found.items, workdir.items)
        with replacing(workdir.known) as temporary, open(temporary, "wb") as file:
            np.savez(file, **found.known._asdict())

    ranker = Ranker(model, storage.readable(stored["tables"]), tops[-1])

    def score() -> dict[str, float]:
        return scores(ranker, found.known, heldout, config)

    return Job(
        model=model,
        optimizer=optimizer,
        learning_rate=updates.learning_rate(config.optimizer),
        batches=batches,
        expected_batches=pairs.calls(len(train.users_N), config.input),
        words=len(train.users_N),
        unit="pairs",
        steps_per_batch=config.input.steps_per_call,
        is_arranged=False,
        device=devices.name(config.run),
        epoch_end=score if len(heldout.users_N) else None,
        monitor=lambda values: -values["rmse"] if "rmse" in values else values[f"ndcg@{tops[-1]}"],
        summary=recommend_data.about(found, sources),
        record=record,
        finish=lambda workdir: _closing(workdir, model.scorer.inner),
        **stored,
    )


def trained(config: Config, workdir: Workdir) -> Trained:
    """The recommender of the newest checkpoint, or the best. RunError if there is none whole."""
    written = (workdir.known, workdir.users, workdir.items, workdir.corpus)
    if not all(map(workdir.has, written)):
        raise RunError(
            f"{workdir.path}: nothing is trained there yet; run {PACKAGE}.train with it first"
        )
    users, items = names.load(workdir.users), names.load(workdir.items)
    known = Known(*read_npz(workdir.known, Known._fields))
    if not _fit(known, len(users.tokens), len(items.tokens)):
        files_named = f"{workdir.known} (with {workdir.users.name} and {workdir.items.name})"
        raise damaged(files_named, "they do not fit together")
    model = _model(config, users, items, files.read_json(workdir.corpus, _CORPUS)["mean"])
    tables, _ = storage.read(model.tables(), config, devices.several(config), workdir)
    return Trained(model, tables, users, items, known)


def _fit(known: Known, users: int, items: int) -> bool:
    """Return whether the items of each user are some of so many items."""
    starts_U, items_N = known
    return (
        starts_U.shape == (users + 1,)
        and items_N.ndim == 1
        and {starts_U.dtype.kind, items_N.dtype.kind} == {"i"}
        and starts_U[0] == 0
        and starts_U[-1] == len(items_N)
        and bool((np.diff(starts_U) >= 0).all())
        and bool(((items_N >= 0) & (items_N < items)).all())
    )


def evaluate(config: Config, workdir: Workdir, heldout: str) -> tuple[str, dict[str, Any]]:
    """Metrics of the pairs in some files, named as by --corpus: for people, and for programs."""
    found = trained(config, workdir)
    given = pairs.rated(recommend_data.heldout(heldout, config), config.ratings.min_rating)
    given, left_out = pairs.new(given, found.users, found.items, found.known)
    count, users = len(given.users_N), len(np.unique(given.users_N))
    but = recommend_data.but(left_out)
    if not count:
        raise UsageError(
            f"--heldout={heldout}: nothing to score{but}; give pairs of users and items that were "
            "trained on"
        )
    ranker = Ranker(found.model, found.tables, lengths(config)[-1])
    values = scores(ranker, found.known, given, config)
    lines = [f"{name:14} {value:.4f}" for name, value in values.items()]
    protocol = (
        f"{count:,} pairs of {users:,} users{but}; all {ranker.items:,} items are ranked, but "
        "those that a user has in training"
    )
    record = {**values, "pairs": count, "users": users, "left_out": left_out}
    return "\n".join((*lines, protocol)), record


def scores(ranker: Ranker, known: Known, heldout: Ratings, config: Config) -> dict[str, float]:
    """Metrics by name of pairs held out (see `tasks.recommend.ranking_metrics`)."""
    users = len(known.starts_U) - 1
    values = ranking_metrics.score(ranker, known, pairs.known(heldout, users), lengths(config))
    if config.model.loss == "squared_error" and heldout.ratings_N is not None:
        predicted_N = ranker.ratings(heldout.users_N, heldout.items_N)
        values |= ranking_metrics.errors(predicted_N, heldout.ratings_N)
    return values


def export_vectors(config: Config, workdir: Workdir, path: str) -> str:
    """Writes the vectors of users and items to a folder; what to say of it."""
    found, users_UE, items_VE = _vectors(config, workdir)
    about = {
        "score": "the inner product of a user and an item, plus `mean`",
        "mean": found.model.mean,
        "columns": items_VE.shape[1],
    }
    named = {"users": (found.users.tokens, users_UE), "items": (found.items.tokens, items_VE)}
    exported.write(path, named, about)
    return f"{path}: {len(users_UE):,} users and {len(items_VE):,} items"


def export_faiss(config: Config, workdir: Workdir, path: str) -> str:
    """Writes an index of the items; what to say of it."""
    _, users_UE, items_VE = _vectors(config, workdir)
    recall = exported.write_faiss(path, users_UE, items_VE)
    return f"{path}: {len(items_VE):,} items, as items.tsv has them; finds {recall:.1%} of the best"


def export_word2vec(config: Config, workdir: Workdir, path: str) -> str:
    """Writes the vectors of items in word2vec's format; what to say of it."""
    found, _, items_VE = _vectors(config, workdir)
    items_VD = items_VE[:, : config.model.dim]  # a bias, which comes after, is no direction
    word2vec.write(WordVectors(found.items.tokens, items_VD, found.items.counts), path)
    return f"{path}: {len(items_VD):,} items"


def _vectors(config: Config, workdir: Workdir) -> tuple[Trained, np.ndarray, np.ndarray]:
    """A recommender with the vectors of users and of items, float32."""
    found = trained(config, workdir)
    if not found.model.scorer.inner:
        raise UsageError(
            f"--model={config.model.model} has layers, and no vectors whose inner product is its "
            f"score; train --model=mf or gmf, or ask {PACKAGE}.recommend"
        )
    users_UE, items_VE = Ranker(found.model, found.tables, 1).vectors()
    return found, users_UE, items_VE


def lengths(config: Config) -> list[int]:
    """The numbers of --top, ascending. UsageError if they are none."""
    return sorted(set(_numbers("top", config.ratings.top)))


def _model(config: Config, users: Vocabulary, items: Vocabulary, mean: float) -> Recommender:
    loss, settings, device = config.model.loss, config.ratings, devices.name(config.run)
    in_batch = loss == "in_batch_softmax"
    scorer, temperature = _scorer(config), 1.0
    if in_batch and config.model.model == "mf":
        temperature = settings.temperature if settings.cosine else 1.0
        scorer = ItemBiased(config.model.dim, settings.cosine, temperature)
    if in_batch and not scorer.inner:
        raise UsageError(
            f"--model={config.model.model} scores each pair by its layers, which is too much for "
            "all pairs of a batch; give --loss=bpr, or --model=mf or gmf"
        )
    log_expected_V = None
    if in_batch:
        with tf.device(device):  # a variable, as it may be too large for a constant of the graph
            expected_V = log_expected(items.counts, config.input.micro_tokens)
            log_expected_V = tf.Variable(expected_V, trainable=False)
    return Recommender(
        users=len(users.tokens),
        items=len(items.tokens),
        scorer=scorer,
        loss_name=loss,
        seed=config.run.seed,
        log_expected_V=log_expected_V,
        mean=mean,
        temperature=temperature,
        negatives=settings.pair_negatives,
        row_l2=settings.row_l2,
        dtype=devices.compute_dtype(config.model, device) if in_batch else tf.float32,
    )


def _scorer(config: Config) -> Scorer:
    dim = config.model.dim
    mlp = Mlp(dim, tuple(_numbers("layers", config.ratings.layers)))
    scorers = {
        "mf": MatrixFactorization(dim),
        "gmf": Gmf(dim),
        "mlp": mlp,
        "neumf": NeuMf(Gmf(dim), mlp),
    }
    return scorers[config.model.model]


def _numbers(flag: str, value: str) -> list[int]:
    texts = value.split(",")
    if not all(is_number(text.strip()) and int(text) for text in texts):
        raise UsageError(f"--{flag}={value}: give numbers from 1 on, such as 64,32")
    return list(map(int, texts))


def _closing(workdir: Workdir, has_vectors: bool) -> str:
    path = shlex.quote(str(workdir.path))
    told = (
        "next:",
        f"  python -m {PACKAGE}.recommend --workdir={path} USER",
        f"  python -m {PACKAGE}.evaluate --workdir={path} --heldout=FILE",
        f"  python -m {PACKAGE}.export --workdir={path} --format=vectors --output=vectors",
    )
    return "\n".join(told if has_vectors else told[:-1])


EXPORTS: dict[str, Callable[[Config, Workdir, str], str]] = {
    "vectors": export_vectors,
    "faiss": export_faiss,
    "word2vec": export_word2vec,
}
