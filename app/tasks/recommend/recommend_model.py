"""Build the recommender of a configuration, and load a trained one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...assembly import placing
from ...assembly.learning import PAIR_LOSSES, PairSpec
from ...checkpoints.workdir import Workdir
from ...errors import RunError
from ...input.named_features import NO_FEATURES, ByName, SideFeatures, are_lists
from ...input.user_item_pairs import KnownItems
from ...losses.user_item_losses import UserItemLoss
from ...models.recommender import Recommender
from ...models.row_lists import RowLists
from ...models.scorers import ItemBiased, MatrixFactorization, Scorer
from ...settings import RecommendConfig
from ...settings.setting import numbers
from ...system import devices
from ...system.checked_files import damaged, missing, read_json
from ...tables.arrays import read_npz
from ...tables.base import Table
from ...text.vocabulary import Vocabulary, load_names
from . import recommend_data
from .recommend_data import trained

CORPUS_SHAPE = {"fingerprint": dict, "mean": float}  # fields of corpus.json


class TrainedRecommender(NamedTuple):
    """A recommender loaded from a workdir.

    Attributes:
        model: The recommender.
        tables: Its tables by name.
        users: Names of the user ids.
        items: Names of the item ids.
        known: Items that each user had in training.
        features: The features of users and items.
    """

    model: Recommender
    tables: Mapping[str, Table]
    users: Vocabulary
    items: Vocabulary
    known: KnownItems
    features: SideFeatures


def load_recommender(config: RecommendConfig, workdir: Workdir) -> TrainedRecommender:
    """Load the recommender of the newest checkpoint, or of the best epoch if it is kept.

    Raises:
        RunError: There is no checkpoint that can be loaded.
        DamagedError: A file of the workdir is damaged.
    """
    if not all(map(workdir.has, (workdir.known, workdir.users, workdir.items, workdir.corpus))):
        raise RunError(
            f"{workdir.path}: nothing is trained there yet; run `lexrow train` with it first"
        )
    users, items = load_names(workdir.users), load_names(workdir.items)
    known = KnownItems(*read_npz(workdir.known, KnownItems._fields))
    if not are_lists(*known, len(users.tokens), len(items.tokens)):
        files_named = f"{workdir.known} (with {workdir.users.name} and {workdir.items.name})"
        raise damaged(files_named, "they do not fit together")
    features = recommend_data.load_features(workdir)
    if features == NO_FEATURES and (config.ratings.item_features or config.ratings.user_features):
        raise missing(workdir.features)
    for names, found in zip((users, items), features, strict=True):
        if found and not are_lists(*found[1:], len(names.tokens), len(found.names.tokens)):
            raise damaged(f"{workdir.features}", f"it does not fit {workdir.path}/*.tsv")
    added = recommend_data.read_added(workdir)
    parts = _with_added(users, items, known, features, added, workdir)
    mean = read_json(workdir.corpus, CORPUS_SHAPE)["mean"]
    model = make_model(config, *parts[:2], mean, parts[-1])
    tables, _ = placing.load_tables(config, model, workdir)
    return TrainedRecommender(model, tables, *parts)


def extend(
    found: TrainedRecommender,
    config: RecommendConfig,
    added: Mapping[str, ByName],
    workdir: Workdir,
) -> TrainedRecommender:
    """Return a loaded recommender with all that was added to its workdir since; it has its tables.

    Args:
        added: See `recommend_data.read_added`.
    """
    _, tables, users, items, known, features = found
    known_names = {"users": {*users.tokens}, "items": {*items.tokens}}
    more = {
        kind: {name: some for name, some in by_name.items() if name not in known_names[kind]}
        for kind, by_name in added.items()
    }
    parts = _with_added(users, items, known, features, more, workdir)
    model = make_model(config, *parts[:2], found.model.pair_loss.mean, parts[-1])
    return TrainedRecommender(model, tables, *parts)


def _with_added(
    users: Vocabulary,
    items: Vocabulary,
    known: KnownItems,
    features: SideFeatures,
    added: Mapping[str, ByName],
    workdir: Workdir,
) -> tuple[Vocabulary, Vocabulary, KnownItems, SideFeatures]:
    """Return the parts of a recommender with what was added (see `recommend_data.read_added`)."""
    users, of_users = recommend_data.with_added(users, features.users, added["users"], workdir)
    items, of_items = recommend_data.with_added(items, features.items, added["items"], workdir)
    new_users = len(users.tokens) + 1 - len(known.starts_U)
    known = known._replace(starts_U=np.pad(known.starts_U, (0, new_users), mode="edge"))
    return users, items, known, SideFeatures(of_users, of_items)


def make_model(
    config: RecommendConfig,
    users: Vocabulary,
    items: Vocabulary,
    mean: float | None,
    features: SideFeatures = NO_FEATURES,
    has_disliked: bool = False,
) -> Recommender:
    """Return the model of the configuration, without tables.

    Args:
        users: Names of the user ids.
        items: Names of the item ids, with their counts.
        mean: The mean rating; None if the pairs have no ratings.
        features: The features of users and items.
        has_disliked: Whether pairs in training are of items that the user dislikes.

    Raises:
        UsageError: The flags do not fit together, or not with the pairs.
    """
    in_training = trained(items)
    spec = PairSpec(
        items.counts[:in_training],
        mean,
        config.input.micro_tokens,
        devices.name(config.run),
        has_disliked,
    )
    loss = PAIR_LOSSES[config.model.loss](config.model, config.ratings, spec)
    return Recommender(
        users=len(users.tokens),
        items=len(items.tokens),
        scorer=_make_scorer(config, loss),
        pair_loss=loss,
        seed=config.run.seed,
        row_l2=config.ratings.row_l2,
        lists={
            name: RowLists(*found.table_rows(trained(names)), is_static=config.table.is_dynamic)
            for name, found, names in zip(features._fields, features, (users, items), strict=True)
            if found is not None
        },
        new_items=len(items.tokens) - in_training,
    )


def _make_scorer(config: RecommendConfig, loss: UserItemLoss) -> Scorer:
    """Return the scorer, which has biases of users and items.

    With a softmax over items it has biases of items only, each times the temperature of the loss,
    and with --cosine it scores by the cosine of user and item.
    """
    if loss.is_softmax:
        return ItemBiased(config.model.dim, config.ratings.cosine, loss.temperature)
    return MatrixFactorization(config.model.dim)


def parse_top(top: str) -> list[int]:
    """Return the numbers of --top, rising, each once."""
    return sorted(set(numbers(top)))
