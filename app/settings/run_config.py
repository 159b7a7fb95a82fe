"""The settings of the run itself, its processes and its profile."""

from __future__ import annotations

import dataclasses

from ..errors import UsageError
from .setting import fixed_setting, is_whole_number, setting


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """The settings of the training itself."""

    workdir: str = setting(
        "", "The folder of the run. Run the same command again to resume.", path=True
    )
    task: str = fixed_setting(
        "words",
        "What to train: word vectors, a recurrent language model, a classifier of texts, or a "
        "recommender of items for users.",
        choices=("words", "language_model", "classify", "recommend"),
    )
    epochs: int = setting(5, "Passes over the training data.", bounds=(1, 1_000_000))
    patience: int = setting(
        0,
        "Stop after this many epochs without a better score on held-out data, and keep the best "
        "epoch. 0 trains all epochs.",
        bounds=(0, 1_000_000),
    )
    seed: int = fixed_setting(1, "The seed of all random numbers.", bounds=(0, 2**31 - 1))
    device: str = setting(
        "", "The device to train on, such as `GPU:0` or `CPU:0`. Empty: the first GPU, or the CPU."
    )
    intra_op_threads: int = setting(
        0, "Threads within one operation. 0 chooses by the number of cores.", bounds=(0, 1024)
    )
    log_seconds: float = setting(10.0, "Seconds between two log lines.", bounds=(0, 31_536_000))
    checkpoint_minutes: float = setting(
        10.0, "Minutes between two checkpoints.", bounds=(0, 525_600)
    )
    keep_checkpoints: int = setting(
        3, "How many of the newest checkpoints to keep.", bounds=(1, 1_000_000)
    )
    plan_only: bool = setting(
        False, "Print what would be trained, with the memory it needs, and stop."
    )


@dataclasses.dataclass(frozen=True)
class DistributionConfig:
    """The settings of a run of several devices or processes."""

    strategy: str = setting(
        "none",
        "How the run is distributed: over all local devices (`mirrored`) or several machines "
        "(`multi_worker`), in step.",
        choices=("none", "mirrored", "multi_worker"),
    )
    sync_steps: int = setting(
        1,
        "Steps that each replica trains alone before all exchange the changes of their rows, a "
        "multiple of --steps_per_call. 1: the same vectors as on one device.",
        bounds=(1, 1_000_000),
    )
    sync_dtype: str = setting(
        "bfloat16",
        "The dtype of exchanged changes with --sync_steps above 1.",
        choices=("bfloat16", "float32"),
    )
    cluster_timeout: float = setting(
        120.0, "Seconds to wait for the other processes of a cluster.", bounds=(1, 604_800)
    )


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """The settings of the profile that a run records, and of the audit of its step."""

    profile_steps: str = setting(
        "", "Record a profile between these steps: START,STOP or START,STOP,START,STOP and so on."
    )
    profile_on_slow: float = setting(
        0.0,
        "Record a profile of calls this many times as slow as usual. 0: never.",
        bounds=(0, 1e6),
    )
    audit: bool = setting(
        True, "At the start, check the training step for operations on a whole table, and warn."
    )


@dataclasses.dataclass(frozen=True)
class RunConfig(ProfileConfig, DistributionConfig, TrainingConfig):
    """The settings of the run: of its training, its processes and its profile."""


def windows(profile_steps: str) -> list[tuple[int, int]]:
    """Return the first step and the step after the last one of each window of `--profile_steps`.

    Raises:
        UsageError: The value is not a list of windows in rising order.
    """
    steps = profile_steps.split(",") if profile_steps else []
    numbers = [int(step) for step in steps if is_whole_number(step.strip())]
    rising = all(low < high for low, high in zip(numbers, numbers[1:], strict=False))
    if len(numbers) < len(steps) or len(steps) % 2 or not rising:
        raise UsageError(
            f"--profile_steps={profile_steps}: give START,STOP such as 100,200, or several in "
            "rising order, such as 100,200,900,1000"
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True))
