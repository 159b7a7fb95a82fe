"""Settings of the run itself."""

from __future__ import annotations

import dataclasses

from .setting import setting


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The run itself."""

    workdir: str = setting(
        "", "Where everything about the run is kept; run again to resume.", path=True
    )
    task: str = setting(
        "words",
        "What is trained: `words` are vectors, `language_model` is a recurrent network that "
        "predicts a text, `classify` tells the labels of texts, `recommend` the items of users.",
        choices=("words", "language_model", "classify", "recommend"),
        fixed=True,
    )
    epochs: int = setting(
        5, "Passes over the corpus.", minimum=1, maximum=1_000_000, by_task={"recommend": 16}
    )
    patience: int = setting(
        0,
        "Stop after so many epochs without a better score of what is held out, and keep the best; "
        "0 makes all epochs.",
        minimum=0,
        maximum=1_000_000,
        only=("task", "language_model", "classify", "recommend"),
    )
    seed: int = setting(
        1,
        "All random draws are functions of this and of the step.",
        fixed=True,
        minimum=0,
        maximum=2**31 - 1,
    )
    device: str = setting("", "Such as `GPU:0` or `CPU:0`; the first GPU, if any, by default.")
    strategy: str = setting(
        "none",
        "Who trains: `none` is one device; `mirrored` all local devices in step, a copy of the "
        "tables on each; `multi_worker` the same over machines (TF_CONFIG); `parameter_server` "
        "workers that go their own pace, the tables dealt over servers (TF_CONFIG).",
        choices=("none", "mirrored", "multi_worker", "parameter_server"),
    )
    cluster_timeout: float = setting(
        120.0, "Seconds to wait for the other processes of a cluster.", minimum=1, maximum=604_800
    )
    intra_op_threads: int = setting(
        0, "Threads within an operation; 0 chooses by the number of cores.", minimum=0, maximum=1024
    )
    log_seconds: float = setting(
        10.0, "Seconds between two logged steps.", minimum=0, maximum=31_536_000
    )
    checkpoint_minutes: float = setting(
        10.0, "Minutes between two checkpoints.", minimum=0, maximum=525_600
    )
    keep_checkpoints: int = setting(
        3, "Newest checkpoints that are kept.", minimum=1, maximum=1_000_000
    )
    profile_steps: str = setting(
        "", "START,STOP or START,STOP,START,STOP,...: record a profile between these steps."
    )
    profile_on_slow: float = setting(
        0.0,
        "Record one when calls take so many times their running median; 0: never.",
        minimum=0,
        maximum=1e6,
    )
    audit: bool = setting(
        True, "At the start, look for operations of the step that touch a whole table, and warn."
    )
    plan_only: bool = setting(False, "Print what would be trained, with its bytes, and stop.")
