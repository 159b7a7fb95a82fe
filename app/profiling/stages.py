"""Find the slowest stage of a tf.data pipeline."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from .profiles import Event

_ITERATOR = "Iterator::"
_ROOT = "Iterator::Root"
_GENERATOR = "Generator"  # may run a pipeline of its own, as Lexrow's caches of ids do
_IDLE = ("Root", "Prefetch", "Options", "Zip", "FlatMap", "FiniteSkip")
_GIVEN_BY_TENSORFLOW = re.compile(r"Dataset(V\d+)?:\d+$|/_\d+$")


class Stage(NamedTuple):
    """A stage of the pipeline.

    Attributes:
        name: The argument `name=` of the tf.data method, or empty.
        kind: The type of the stage, such as `ParallelMapV2`.
        parallelism: The calls that run at the same time; 0 for a stage without parallel calls.
        share: The share of the pipeline's time that the stage takes itself.
        seconds: The time that the stage takes itself.
    """

    name: str
    kind: str
    parallelism: int
    share: float
    seconds: float

    def __str__(self) -> str:
        """Return the type without its version, and the name if any, such as `ParallelMap(rows)`."""
        kind = re.sub(r"V\d+$", "", self.kind)
        return f"{kind}({self.name})" if self.name else kind


@dataclasses.dataclass
class _Node:
    """A stage of a pipeline, its input stages by type (`before`), and the seconds of its calls."""

    kind: str
    name: str = ""
    parallelism: int = 0
    seconds: float = 0.0
    before: dict[str, _Node] = dataclasses.field(default_factory=dict)


def find_slowest(events: Sequence[Event]) -> Stage | None:
    """Return the stage that the pipeline of the steps waits for, or None if no pipeline ran.

    The search starts at the end of the pipeline. It moves to the slowest input of a stage if that
    input takes at least half of the stage's time, or if the stage does no work of its own. Other
    pipelines count as inputs of a generator.

    Args:
        events: The events of a profile.
    """
    roots = _pipelines([event for event in events if event.name.startswith(_ITERATOR)])
    if not roots:
        return None
    step_threads = {event.thread for event in events if "step_num" in event.args}
    # The slowest pipeline on a thread of the steps, or of all if no step was recorded.
    keys = [key for key in roots if key[1] in step_threads] or list(roots)
    main = max(keys, key=lambda key: roots[key].seconds)
    nested = [root for key, root in roots.items() if key != main]
    first = node = roots[main]
    while True:
        before = list(node.before.values())
        if node.kind == _GENERATOR:
            before += nested
        earlier = max(before, key=lambda stage: stage.seconds, default=None)
        if earlier is None or (earlier.seconds < node.seconds / 2 and node.kind not in _IDLE):
            break
        node = earlier
    own_seconds = node.seconds - min(node.seconds, earlier.seconds if earlier else 0.0)
    share = own_seconds / max(first.seconds, own_seconds, 1e-12)
    return Stage(node.name, node.kind, node.parallelism, share, own_seconds)


def _pipelines(events: Sequence[Event]) -> dict[tuple[str, str], _Node]:
    """Return the last stage of each pipeline, by the id and the thread of its root.

    Events without a recorded root belong to a pipeline with the key ("", "").
    """
    parents = {event.args["id"]: event.args.get("parent_id") for event in events}
    roots = {
        event.args["id"]: (event.args["id"], event.thread)
        for event in events
        if event.name == _ROOT
    }
    pipelines = {key: _Node("Root") for key in roots.values()}
    for event in events:
        top = event.args["id"]
        while parents.get(top) is not None:
            top = parents[top]
        if top not in roots:  # the root waited longer than the recording, and is not in it
            pipelines.setdefault(("", ""), _Node("Root"))
        node = pipelines[roots.get(top, ("", ""))]
        path = event.args.get("long_name", event.name).split("::")[2:]
        for kind in (re.sub(r"\[\d+\]$", "", part) for part in path):
            node = node.before.setdefault(kind, _Node(kind))
        name = event.args.get("name", "")
        node.name = "" if _GIVEN_BY_TENSORFLOW.search(name) else name
        calls = event.args.get("parallelism", "")  # may be "unavailable"
        node.parallelism = max(node.parallelism, int(calls) if calls.isdecimal() else 0)
        node.seconds += event.length / 1e6
    return pipelines
