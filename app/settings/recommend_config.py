"""The settings of recommendations (`--task=recommend`)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..errors import UsageError
from .config import (
    PHRASES,
    RECURRENT,
    SKIPGRAM,
    Config,
    InputConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    VocabularyConfig,
)
from .setting import fixed_setting, is_whole_number, setting


@dataclasses.dataclass(frozen=True)
class RatingsConfig:
    """The settings of ratings: how pairs of a user and an item are read and learned."""

    layout: str = fixed_setting(
        "auto",
        "The layout of a line: a user, an item and perhaps a rating and a time (`pairs`), or a "
        "user and then items (`lists`). `auto` decides by the first lines.",
        choices=("auto", "pairs", "lists"),
    )
    user_column: str = fixed_setting(
        "", "The column of the users, in CSV, TSV, JSON lines or Parquet."
    )
    item_column: str = fixed_setting("", "The column of the items.")
    rating_column: str = fixed_setting("", "The column of the ratings. Empty: there is none.")
    time_column: str = fixed_setting("", "The column of the times. Empty: there is none.")
    item_features: str = setting(
        "",
        "A file with a row for each item and columns of its features: categories, between `|` if "
        "there are several. Items that no pair has are placed by their features.",
        path=True,
    )
    user_features: str = setting("", "A file of features of users, as --item_features.", path=True)
    text_features: str = setting(
        "", "Columns of the features, with commas between them, that have texts: each token counts."
    )
    min_rating: str = fixed_setting(
        "",
        "Leave out pairs with a lower rating that are not disliked.",
        bounds=(-1e18, 1e18),
        numbers=float,
    )
    disliked_below: float = fixed_setting(
        0.0,
        "A pair with a lower rating is an item that the user dislikes: it is to rank below a "
        "random one, and is not recommended. -1e15: there is none.",
        bounds=(-1e15, 1e15),
    )
    weighted: bool = fixed_setting(False, "Use the rating as the weight of the pair.")
    split: str = fixed_setting(
        "random",
        "Which pairs are held out when --heldout is empty: --heldout_share of them, at random or "
        "the latest (`time`), or the last pair of every user.",
        choices=("random", "time", "leave_one_out"),
    )
    cosine: bool = fixed_setting(
        True, "Score by cosines divided by --temperature, not by products."
    )
    temperature: float = fixed_setting(
        0.12, "The number that cosines are divided by.", bounds=(1e-6, 1e3)
    )
    user_pairs: int = fixed_setting(
        4,
        "Pairs of a user that come together in a batch, and share its samples. More pairs: faster "
        "epochs, of fewer changes of each user's row.",
        bounds=(1, 2**24),
    )
    start: str = fixed_setting(
        "spectral",
        "Where vectors start: at singular vectors of the matrix of pairs, or at random numbers.",
        choices=("spectral", "random"),
    )
    row_l2: float = setting(
        0.0, "The strength of the L2 penalty on the rows of a pair.", bounds=(0, 1e6)
    )
    pair_negatives: int = fixed_setting(
        1, "Negative items drawn for each pair.", bounds=(1, 1_000_000)
    )
    top: str = setting(
        "20", "Lengths k of the ranked lists that are scored.", bounds=(1, 2**31 - 1), numbers=int
    )
    score_users: str = setting(
        "auto",
        "For how many users the items are ranked after each epoch, drawn by --seed; or `all`. "
        "`auto`: as many as take about the time of an epoch, or 20 seconds.",
    )


@dataclasses.dataclass(frozen=True)
class RecommendConfig(Config):
    """The settings of recommendations."""

    run: RunConfig = RunConfig(task="recommend", epochs=4)
    vocabulary: VocabularyConfig = VocabularyConfig(min_count=1)
    input: InputConfig = InputConfig(batch_tokens=2048, steps_per_call=2, heldout_share=0.1)
    ratings: RatingsConfig = RatingsConfig()
    model: ModelConfig = ModelConfig(loss="sampled_items", dim=64)
    optimizer: OptimizerConfig = OptimizerConfig(optimizer="lazy_adam", beta_1=0.0)

    unused: ClassVar[frozenset[str]] = (
        SKIPGRAM
        | PHRASES
        | {"text_column", "documents", "tokenizer", "fold_case", "drop_punctuation"}
        | {"invalid_utf8", "vocab", "max_vocab_size", "vocab_memory_entries", "grow_vocab"}
        | {"subsample", "row_tokens", "shuffle", "cache", "block_bytes", "readers"}
        | RECURRENT
    )
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "loss": ("sampled_items", "in_batch_softmax", "bpr", "squared_error"),
    }

    def check(self) -> None:
        """Raise UsageError for a wrong --score_users, or --text_features without features."""
        check_score_users(self.ratings.score_users)
        features = self.ratings.item_features or self.ratings.user_features
        if self.ratings.text_features and not features:
            raise UsageError(
                f"--text_features={self.ratings.text_features} means nothing without "
                "--item_features or --user_features; leave it out"
            )


def check_score_users(text: str) -> None:
    """Raise UsageError if a value of --score_users is no number above 0, `all` or `auto`."""
    if text not in ("auto", "all") and (not is_whole_number(text) or not int(text)):
        raise UsageError(f"--score_users={text}: give a number of users, `all` or `auto`")
