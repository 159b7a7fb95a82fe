"""The settings of users, items and ratings (`--task=recommend`)."""

from __future__ import annotations

import dataclasses

from .setting import setting

_RECOMMEND = ("task", "recommend")
_IN_BATCH = ("loss", "in_batch_softmax")


@dataclasses.dataclass(frozen=True)
class RatingsConfig:
    """The settings of ratings: how pairs of a user and an item are read and learned."""

    layout: str = setting(
        "auto",
        "The layout of the files. `pairs`: a line has a user, an item and, if known, a rating and "
        "a time. `lists`: a line has a user and then items. `auto` decides by the file name and "
        "the first lines.",
        choices=("auto", "pairs", "lists"),
        fixed=True,
        only=_RECOMMEND,
    )
    user_column: str = setting(
        "",
        "The column of the users, in Parquet files, or in CSV or TSV files with a header line.",
        fixed=True,
        only=_RECOMMEND,
    )
    item_column: str = setting("", "The column of the items.", fixed=True, only=_RECOMMEND)
    rating_column: str = setting(
        "", "The column of the ratings. Empty: there is none.", fixed=True, only=_RECOMMEND
    )
    time_column: str = setting(
        "", "The column of the times. Empty: there is none.", fixed=True, only=_RECOMMEND
    )
    min_rating: str = setting(
        "",
        "Leave out pairs with a lower rating than this. Empty keeps all.",
        minimum=-1e18,
        maximum=1e18,
        fixed=True,
        only=_RECOMMEND,
        numbers=float,
    )
    weighted: bool = setting(
        False,
        "Use the rating as the weight of the pair.",
        fixed=True,
        only=("loss", "in_batch_softmax", "bpr"),
    )
    split: str = setting(
        "random",
        "Which pairs are held out when --heldout is empty. `random`: --heldout_share of the pairs, "
        "at random. `time`: the latest --heldout_share. `leave_one_out`: the last pair of every "
        "user.",
        choices=("random", "time", "leave_one_out"),
        fixed=True,
        only=_RECOMMEND,
    )
    layers: str = setting(
        "64,32",
        "The units of each layer, with commas between them.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=("model", "mlp", "neumf"),
        numbers=int,
        subject="model",
    )
    cosine: bool = setting(
        True,
        "Score by the cosine of user and item divided by --temperature, not by their product. A "
        "bias of the item is added to either. This is for --model=mf.",
        fixed=True,
        only=_IN_BATCH,
        subject="loss",
    )
    temperature: float = setting(
        0.15,
        "The number that cosines are divided by.",
        minimum=1e-6,
        maximum=1e3,
        fixed=True,
        only=_IN_BATCH,
        subject="loss",
    )
    row_l2: float = setting(
        0.0,
        "The strength of the L2 penalty on the rows of a pair.",
        minimum=0,
        maximum=1e6,
        only=_RECOMMEND,
        subject="loss",
    )
    pair_negatives: int = setting(
        1,
        "Negative items drawn for each pair.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=("loss", "bpr"),
        subject="loss",
    )
    top: str = setting(
        "20",
        "The lengths k of the ranked lists that are scored, with commas between them.",
        minimum=1,
        maximum=2**31 - 1,
        only=_RECOMMEND,
        numbers=int,
    )
