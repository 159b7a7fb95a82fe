"""Settings of users, items and what is known of them."""

from __future__ import annotations

import dataclasses

from .setting import setting

_RECOMMEND = ("task", "recommend")
_IN_BATCH = ("loss", "in_batch_softmax")


@dataclasses.dataclass(frozen=True)
class RatingsConfig:
    """Which pairs of a user and an item are read, and how they are learned."""

    layout: str = setting(
        "auto",
        "`pairs`: lines of a user, an item, and a rating and a time where there are. `lists`: a "
        "user and then items. `auto` goes by the name and the first lines.",
        choices=("auto", "pairs", "lists"),
        fixed=True,
        only=_RECOMMEND,
    )
    user_column: str = setting(
        "",
        "The column of users, in Parquet files, or CSV or TSV with a header.",
        fixed=True,
        only=_RECOMMEND,
    )
    item_column: str = setting("", "The column of items.", fixed=True, only=_RECOMMEND)
    rating_column: str = setting("", "The column of ratings, if any.", fixed=True, only=_RECOMMEND)
    time_column: str = setting("", "The column of times, if any.", fixed=True, only=_RECOMMEND)
    min_rating: str = setting(
        "",
        "Leave out pairs rated lower than this; empty keeps all.",
        minimum=-1e18,
        maximum=1e18,
        fixed=True,
        only=_RECOMMEND,
        numbers=float,
    )
    weighted: bool = setting(
        False, "The rating is the weight of the pair.", fixed=True, only=_RECOMMEND
    )
    split: str = setting(
        "random",
        "What is held out, without --heldout: --heldout_share of the pairs, drawn at `random` or "
        "the latest in `time`, or the last of every user (`leave_one_out`).",
        choices=("random", "time", "leave_one_out"),
        fixed=True,
        only=_RECOMMEND,
    )
    layers: str = setting(
        "64,32",
        "Units of the layers of --model=mlp and neumf.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=("model", "mlp", "neumf"),
        numbers=int,
    )
    cosine: bool = setting(
        True,
        "Scores of --model=mf by in_batch_softmax are cosines over --temperature, not products; "
        "on top of either is a bias of the item.",
        fixed=True,
        only=_IN_BATCH,
    )
    temperature: float = setting(
        0.15, "What cosines are divided by.", minimum=1e-6, maximum=1e3, fixed=True, only=_IN_BATCH
    )
    row_l2: float = setting(
        0.0,
        "Strength of the L2 penalty on the rows of a pair.",
        minimum=0,
        maximum=1e6,
        only=_RECOMMEND,
    )
    pair_negatives: int = setting(
        1,
        "Items drawn for each pair by --loss=bpr.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=("loss", "bpr"),
    )
    top: str = setting(
        "20",
        "Comma-separated lengths k of the lists that are scored.",
        minimum=1,
        maximum=2**31 - 1,
        only=_RECOMMEND,
        numbers=int,
    )
