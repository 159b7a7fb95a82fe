"""The settings of users, items and ratings (`--task=recommend`)."""

from __future__ import annotations

import dataclasses
import functools

from .setting import setting

_RECOMMEND = ("task", "recommend")
_ratings = functools.partial(setting, fixed=True, only=_RECOMMEND)
_loss = functools.partial(setting, fixed=True, subject="loss")
_softmax = functools.partial(_loss, only=("loss", "sampled_items", "in_batch_softmax"))


@dataclasses.dataclass(frozen=True)
class RatingsConfig:
    """The settings of ratings: how pairs of a user and an item are read and learned."""

    layout: str = _ratings(
        "auto",
        "The layout of the files. `pairs`: a line has a user, an item and, if known, a rating and "
        "a time. `lists`: a line has a user and then items. `auto` decides by the first lines.",
        choices=("auto", "pairs", "lists"),
    )
    user_column: str = _ratings(
        "",
        "The column of the users, in JSON lines, Parquet, or CSV or TSV files with a header line.",
    )
    item_column: str = _ratings("", "The column of the items.")
    rating_column: str = _ratings("", "The column of the ratings. Empty: there is none.")
    time_column: str = _ratings("", "The column of the times. Empty: there is none.")
    min_rating: str = _ratings(
        "",
        "Leave out pairs with a lower rating than this. Empty keeps all.",
        bounds=(-1e18, 1e18),
        numbers=float,
    )
    weighted: bool = setting(
        False,
        "Use the rating as the weight of the pair.",
        fixed=True,
        only=("loss", "sampled_items", "in_batch_softmax", "bpr"),
    )
    split: str = _ratings(
        "random",
        "Which pairs are held out when --heldout is empty. `random`: --heldout_share of the pairs, "
        "at random. `time`: the latest --heldout_share. `leave_one_out`: the last pair of every "
        "user.",
        choices=("random", "time", "leave_one_out"),
    )
    layers: str = setting(
        "64,32",
        "The units of each layer, with commas between them.",
        bounds=(1, 1_000_000),
        fixed=True,
        only=("model", "mlp", "neumf"),
        numbers=int,
        subject="model",
    )
    cosine: bool = _softmax(
        True,
        "Score by the cosine of user and item divided by --temperature, not by their product. A "
        "bias of the item is added to either. This is for --model=mf.",
    )
    temperature: float = _softmax(
        0.12,
        "The number that cosines are divided by.",
        bounds=(1e-6, 1e3),
        former=(0.15,),
    )
    user_pairs: int = _loss(
        4,
        "Pairs of a user that come together in a batch. The samples are scored once for all of "
        "them. More pairs: faster epochs, of fewer changes of each user's row.",
        bounds=(1, 2**24),
        only=("loss", "sampled_items"),
    )
    start: str = _softmax(
        "spectral",
        "Where vectors start. `spectral`: at singular vectors of the matrix of pairs, which takes "
        "about as long as half an epoch and saves several. `random`: at random numbers.",
        choices=("spectral", "random"),
    )
    row_l2: float = setting(
        0.0,
        "The strength of the L2 penalty on the rows of a pair.",
        bounds=(0, 1e6),
        only=_RECOMMEND,
        subject="loss",
    )
    pair_negatives: int = _loss(
        1, "Negative items drawn for each pair.", bounds=(1, 1_000_000), only=("loss", "bpr")
    )
    top: str = setting(
        "20",
        "The lengths k of the ranked lists that are scored, with commas between them.",
        bounds=(1, 2**31 - 1),
        only=_RECOMMEND,
        numbers=int,
    )
    score_users: str = setting(
        "auto",
        "For how many users with held-out pairs the items are ranked after each epoch, drawn by "
        "--seed. `all`: every user. `auto`: every user, or as many as take about the time of "
        "training on an epoch, or 20 seconds.",
        only=_RECOMMEND,
    )
