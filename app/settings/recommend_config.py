"""The settings of recommendations (`--task=recommend`)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..errors import NoEffectError, UsageError
from .config import Config
from .effects import FORMER
from .model_config import SKIPGRAM, ModelConfig, OptimizerConfig
from .run_config import RunConfig
from .setting import fixed_setting, is_whole_number, setting
from .text_config import PHRASES, InputConfig, VocabularyConfig


@dataclasses.dataclass(frozen=True)
class RatingsConfig:
    """The settings of ratings: how pairs of a user and an item are read and learned."""

    layout: str = fixed_setting(
        "auto",
        "The layout of the files. `pairs`: a line has a user, an item and, if known, a rating and "
        "a time. `lists`: a line has a user and then items. `auto` decides by the first lines.",
        choices=("auto", "pairs", "lists"),
    )
    user_column: str = fixed_setting(
        "",
        "The column of the users, in JSON lines, Parquet, or CSV or TSV files with a header line.",
    )
    item_column: str = fixed_setting("", "The column of the items.")
    rating_column: str = fixed_setting("", "The column of the ratings. Empty: there is none.")
    time_column: str = fixed_setting("", "The column of the times. Empty: there is none.")
    min_rating: str = fixed_setting(
        "",
        "Leave out pairs with a lower rating than this. Empty keeps all.",
        bounds=(-1e18, 1e18),
        numbers=float,
    )
    weighted: bool = fixed_setting(False, "Use the rating as the weight of the pair.")
    split: str = fixed_setting(
        "random",
        "Which pairs are held out when --heldout is empty. `random`: --heldout_share of the pairs, "
        "at random. `time`: the latest --heldout_share. `leave_one_out`: the last pair of every "
        "user.",
        choices=("random", "time", "leave_one_out"),
    )
    layers: str = fixed_setting(
        "64,32",
        "The units of each layer, with commas between them.",
        bounds=(1, 1_000_000),
        numbers=int,
    )
    cosine: bool = fixed_setting(
        True,
        "Score by the cosine of user and item divided by --temperature, not by their product. A "
        "bias of the item is added to either. This is for --model=mf.",
    )
    temperature: float = fixed_setting(
        0.12, "The number that cosines are divided by.", bounds=(1e-6, 1e3)
    )
    user_pairs: int = fixed_setting(
        4,
        "Pairs of a user that come together in a batch. The samples are scored once for all of "
        "them. More pairs: faster epochs, of fewer changes of each user's row.",
        bounds=(1, 2**24),
    )
    start: str = fixed_setting(
        "spectral",
        "Where vectors start. `spectral`: at singular vectors of the matrix of pairs, which takes "
        "about as long as half an epoch and saves several. `random`: at random numbers.",
        choices=("spectral", "random"),
    )
    row_l2: float = setting(
        0.0, "The strength of the L2 penalty on the rows of a pair.", bounds=(0, 1e6)
    )
    pair_negatives: int = fixed_setting(
        1, "Negative items drawn for each pair.", bounds=(1, 1_000_000)
    )
    top: str = setting(
        "20",
        "The lengths k of the ranked lists that are scored, with commas between them.",
        bounds=(1, 2**31 - 1),
        numbers=int,
    )
    score_users: str = setting(
        "auto",
        "For how many users with held-out pairs the items are ranked after each epoch, drawn by "
        "--seed. `all`: every user. `auto`: every user, or as many as take about the time of "
        "training on an epoch, or 20 seconds.",
    )


@dataclasses.dataclass(frozen=True)
class RecommendConfig(Config):
    """The settings of recommendations."""

    run: RunConfig = RunConfig(task="recommend", epochs=4)
    vocabulary: VocabularyConfig = VocabularyConfig(min_count=1)
    input: InputConfig = InputConfig(batch_tokens=2048, steps_per_call=2, heldout_share=0.1)
    ratings: RatingsConfig = RatingsConfig()
    model: ModelConfig = ModelConfig(model="mf", loss="sampled_items", dim=64)
    optimizer: OptimizerConfig = OptimizerConfig(optimizer="lazy_adam")

    unused: ClassVar[frozenset[str]] = (
        SKIPGRAM - {"model"}
        | PHRASES
        | {"text_column", "documents", "tokenizer", "fold_case", "drop_punctuation"}
        | {"invalid_utf8", "vocab", "max_vocab_size", "vocab_memory_entries", "grow_vocab"}
        | {"subsample", "row_tokens", "shuffle", "cache", "block_bytes", "readers"}
        | {"cell", "hidden"}
    )
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "model": ("mf", "gmf", "mlp", "neumf"),
        "loss": ("sampled_items", "in_batch_softmax", "bpr", "squared_error"),
    }

    def check(self) -> None:
        """Raise UsageError for a wrong --score_users, or a --temperature without cosines."""
        check_score_users(self.ratings.score_users)
        is_mf, temperature = self.model.model == "mf", self.ratings.temperature
        has_cosines = self.ratings.cosine and is_mf
        if not has_cosines and temperature not in (
            RatingsConfig.temperature,
            FORMER["temperature"],
        ):
            raise NoEffectError(
                "temperature",
                "cosine" if is_mf else "model",
                f"--temperature={temperature} divides cosines, which only --model=mf with "
                "--cosine computes; leave it out",
            )


def check_score_users(text: str) -> None:
    """Raise UsageError if a value of --score_users is no number above 0, `all` or `auto`."""
    if text not in ("auto", "all") and (not is_whole_number(text) or not int(text)):
        raise UsageError(f"--score_users={text}: give a number of users, `all` or `auto`")
