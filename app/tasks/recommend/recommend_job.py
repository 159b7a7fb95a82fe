"""Build the job of --task=recommend, score a trained recommender and export its vectors."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...assembly import placing, storage
from ...checkpoints import checkpoint
from ...checkpoints.workdir import Workdir
from ...errors import UsageError
from ...input import ratings, user_item_pairs
from ...input.ratings import Ratings
from ...input.user_item_pairs import KnownItems, Split, UserItemPairs
from ...models.recommender import Recommender
from ...settings import CorpusConfig, RecommendConfig
from ...text import corpus
from ...training.job import Evaluator, Job, PlacedTables, TrainingData
from ...types import ALONE, Batches, Team
from .. import recorded_corpus
from . import ranking_metrics, recommend_data, spectral_start
from .ranking_metrics import Ranker
from .recommend_model import (
    CORPUS_SHAPE,
    TrainedRecommender,
    load_recommender,
    make_model,
    parse_top,
)
from .spectral_start import spectral_vectors

# How many scores take about as long as training on a pair, and how many take 20 seconds. Measured
# on two cores: 15 ns and 3 us.
_OF_PAIR, _OF_WAIT = 200, 20 * 10**9 // 15
_FEWEST_USERS = 500  # whose mean recall is known to about .01


def make_job(config: RecommendConfig, workdir: Workdir, finished: bool, team: Team = ALONE) -> Job:
    """Read the pairs and make the job that trains a recommender, with its tables.

    Args:
        finished: Unused; all tasks have it.
        team: The processes that train together; each reads all pairs, as every user may need any.

    Raises:
        UsageError: The flags or the files do not fit together, or not with the workdir.
        RunError: A file cannot be read.
    """
    tops, seed, settings = parse_top(config.ratings.top), config.run.seed, config.ratings
    if config.corpus.corpus == CorpusConfig().corpus:
        raise UsageError(f"--corpus={config.corpus.corpus}: name files of users and their items")
    sources, known = recorded_corpus.open_corpus(config.corpus, workdir, CORPUS_SHAPE, team)
    recorded = known.get("fingerprint")
    fingerprint = recorded_corpus.recognize(sources, recorded, config.corpus, workdir, None)
    fingerprint = fingerprint or corpus.fingerprint(sources, team)
    split = recommend_data.read_split(config, sources)
    recommend_data.check_features(split.features, workdir)
    recommend_data.check_same_names(split, config.corpus.corpus, workdir)
    train, heldout = split.train, split.heldout
    if config.input.heldout and not len(heldout.users_N):
        raise _nothing_to_score(config.input.heldout, split.left_out)
    mean = None if train.ratings_N is None else float(train.ratings_N.mean())
    has_disliked = split.disliked_N is not None
    model = make_model(config, split.users, split.items, mean, split.features, has_disliked)
    start = _make_start(config, split, workdir) if model.pair_loss.is_softmax else None
    if start:
        initial = {"users": lambda: start()[0], "items": lambda: start()[1]}
        model = dataclasses.replace(model, start=initial)
    weights_N = user_item_pairs.weigh(split, settings.weighted)
    batches = user_item_pairs.make_batches(
        train, weights_N, seed, config.input, model.pair_loss.user_pairs
    )
    placed = _place_tables(config, model, batches, split, workdir)
    wanted, pairs = len(np.unique(heldout.users_N)), len(train.users_N)
    users = count_ranked_users(settings.score_users, wanted, model.items, pairs)
    data = TrainingData(
        batches=batches,
        expected_batches=user_item_pairs.count_batches(pairs, config.input),
        steps_per_batch=config.input.steps_per_call,
        epoch_size=pairs,
        unit="pairs",
        batch_unit="pairs",
        depends_on_micro_batches=False,
        digest=spectral_start.compute_digest(*start()) if start and not config.run.plan_only else 0,
        summary=[*recommend_data.about(split, sources), *_about_sample(users, wanted)],
        record=lambda: recommend_data.record(split, fingerprint, model.pair_loss.mean, workdir),
    )
    evaluator, ranker = None, Ranker(model, storage.scoring_tables(placed.tables), tops[-1])
    if len(heldout.users_N):
        # --patience looks at the RMSE if ratings are predicted, else at the NDCG at the largest k.
        evaluator = Evaluator(
            functools.partial(heldout_scores, ranker, split.known, heldout, tops, users, seed),
            lambda scores: -scores["rmse"] if "rmse" in scores else scores[f"ndcg@{tops[-1]}"],
        )
    return placing.make_job(config, model, placed, data, evaluator=evaluator, finish=_closing)


def _place_tables(
    config: RecommendConfig,
    model: Recommender,
    batches: Batches,
    split: Split,
    workdir: Workdir,
) -> PlacedTables:
    """Plan the memory and make the tables, which start from computed vectors or not."""
    size, dtypes = [config.input.micro_tokens], (tf.int32, tf.int32, tf.float32, tf.float32)
    spec = UserItemPairs(*(tf.TensorSpec(size, dtype) for dtype in dtypes))
    others = [recommend_data.memory_item(split.train, split.heldout)]
    if model.start:
        others.append(spectral_start.memory_item(model.users, model.items, config.model.dim))
    return placing.place_tables(config, model, batches, spec, workdir, others=others)


def _make_start(
    config: RecommendConfig, split: Split, workdir: Workdir
) -> Callable[[], tuple[tf.Tensor, tf.Tensor]] | None:
    """Return the vectors to start from, not yet computed; None if the run starts at random.

    A resumed run needs none, unless a dynamic table gives rows to ids that are still to come.
    """
    is_resumed = bool(checkpoint.list_checkpoints(workdir.checkpoints))
    if config.ratings.start != "spectral" or (is_resumed and config.table.table != "dynamic"):
        return None
    shape = recommend_data.trained(split.users), recommend_data.trained(split.items)
    how = config.ratings.weighted, config.model.dim, config.run.seed

    def compute() -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the tables to start from."""
        vectors = spectral_vectors(split.liked, shape, *how)
        sides = zip(vectors, split.features, strict=True)
        users, items = (
            vectors_VK if found is None else spectral_start.divide_by_features(vectors_VK, found)
            for vectors_VK, found in sides
        )
        return users, items

    return spectral_start.when_needed(compute)


def evaluate(
    config: RecommendConfig,
    workdir: Workdir,
    heldout: str,
    recommender: TrainedRecommender | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the metrics of a trained recommender on files of pairs, as text and values for JSON.

    Pairs rated below --min_rating or disliked, with unknown users or items, or of the training are
    left out.

    Args:
        heldout: The files, named as by --corpus.
        recommender: The recommender; None for that of the workdir.

    Raises:
        UsageError: No pair can be scored, or the files are malformed.
        RunError: There is no checkpoint that can be loaded, or a file cannot be read.
    """
    recommender = recommender or load_recommender(config, workdir)
    found = ratings.read(corpus.resolve_heldout(config.corpus, heldout), config.ratings)
    below = recommend_data.disliked_below(config)
    found = user_item_pairs.select_liked(found, config.ratings, below)
    scored, left_out = user_item_pairs.select_scorable(found, *recommender[2:5])
    count, users = len(scored.users_N), len(np.unique(scored.users_N))
    if not count:
        raise _nothing_to_score(heldout, left_out)
    exclusions = recommend_data.describe_left_out(left_out)
    tops = parse_top(config.ratings.top)
    ranker = Ranker(recommender.model, recommender.tables, tops[-1])
    pairs = len(recommender.known.items_N)
    ranked = count_ranked_users(config.ratings.score_users, users, ranker.items, pairs)
    values = heldout_scores(ranker, recommender.known, scored, tops, ranked, config.run.seed)
    lines = [f"{name:14} {value:.4f}" for name, value in values.items()]
    sampled = f", for {ranked:,} users drawn by --seed" if ranked < users else ""
    protocol = (
        f"{count:,} pairs of {users:,} users{exclusions}; all {ranker.items:,} items are ranked"
        f"{sampled}, but those that a user has in training"
    )
    record = {**values, "pairs": count, "users": users, "left_out": left_out}
    return "\n".join((*lines, protocol)), record


def _nothing_to_score(heldout: str, left_out: int) -> UsageError:
    """Return (do not raise) the error for held-out files without a pair to score."""
    exclusions = recommend_data.describe_left_out(left_out)
    return UsageError(
        f"--heldout={heldout}: nothing to score{exclusions}; give pairs of users and items that "
        "are trained on"
    )


def count_ranked_users(asked: str, users: int, items: int, pairs: int) -> int:
    """Return for how many users to rank the items.

    Args:
        asked: The value of --score_users.
        users: The number of users with held-out pairs.
        pairs: The number of training pairs.
    """
    if asked == "auto":
        return min(users, max(_FEWEST_USERS, max(_OF_PAIR * pairs, _OF_WAIT) // items))
    return users if asked == "all" else min(users, int(asked))


def _about_sample(users: int, wanted: int) -> list[tuple[str, str]]:
    """Return the line of the banner on scores of some users only; none if all are scored."""
    text = (
        f"items are ranked for {users:,} of the {wanted:,} users with held-out pairs; to rank them "
        f"for all, give --score_users=all, or run `lexrow evaluate` later"
    )
    return [("scored", text)] if users < wanted else []


def heldout_scores(
    ranker: Ranker,
    known: KnownItems,
    heldout: Ratings,
    tops: Sequence[int],
    users: int,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Return the metrics of held-out pairs by name (see `ranking_metrics`).

    If the model predicts ratings and the pairs have some, the metrics include the errors of these,
    of all pairs.

    Args:
        known: Items to leave out of the ranking.
        users: For how many of the users to rank items.
        seed: Draws these users.
        check: See `training.job.Scores`.
    """
    users_W, ranked = np.unique(heldout.users_N), heldout
    if users < len(users_W):
        drawn_W = np.random.default_rng(seed).choice(users_W, users, replace=False)
        ranked = heldout.select(np.isin(heldout.users_N, drawn_W))
    pairs_by_user = user_item_pairs.group_by_user(ranked, len(known.starts_U) - 1)
    values = ranking_metrics.score(ranker, known, pairs_by_user, tops, check)
    if ranker.predicts_ratings and heldout.ratings_N is not None:
        predicted_N = ranker.ratings(heldout.users_N, heldout.items_N)
        values |= ranking_metrics.rating_errors(predicted_N, heldout.ratings_N)
    return values


def _closing(workdir: Workdir) -> str:
    """Return the commands to try next."""
    path = shlex.quote(str(workdir.path))
    lines = (
        "next:",
        f"  lexrow recommend --workdir={path} USER",
        f"  lexrow evaluate --workdir={path} --heldout=FILE",
        f"  lexrow export --workdir={path} --format=vectors --output=vectors",
    )
    return "\n".join(lines)
