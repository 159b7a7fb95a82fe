"""Find the slow stages of a tf.data pipeline."""

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
_GIVEN_BY_TENSORFLOW = re.compile(r"^fused\(|Dataset(V\d+)?:\d+$|/_\d+$")


_WITHIN = "Impl"  # ends the type of the iterator that does the work of a cache
# Types of stages that take num_parallel_calls, and of those that make elements while steps run.
_MAP = re.compile(r"(Parallel)?Map(AndBatch)?$")
_AHEAD = re.compile(r"Prefetch|MapAndBatch|Parallel(Map|Batch|Interleave)")
_SLOW_WITHOUT_MAP = ("FlatMap", "Generator", "Interleave")


class Stage(NamedTuple):
    """A stage of the pipeline.

    Attributes:
        name: The argument `name=` of the tf.data method, or empty.
        kind: The type of the stage without its version, such as `ParallelMap`.
        parallelism: The calls that run at the same time; 0 for a stage without parallel calls.
        share: The share of the pipeline's time that the stage takes itself.
        seconds: The time that the stage takes itself.
        tunes: Whether tf.data chooses the number of parallel calls.
        batch: The elements of a batch of this stage; 0 if it makes none.
    """

    name: str
    kind: str
    parallelism: int
    share: float
    seconds: float
    tunes: bool = False
    batch: int = 0

    def __str__(self) -> str:
        """Return the type and the name if any, such as `ParallelMap(rows)`."""
        return f"{self.kind}({self.name})" if self.name else self.kind

    @property
    def maps(self) -> bool:
        """Whether the stage calls a function, which `num_parallel_calls` may run in parallel."""
        return bool(_MAP.match(self.kind))

    @property
    def generates(self) -> bool:
        """Whether the stage reads a Python generator or one pipeline for each element."""
        return self.kind in _SLOW_WITHOUT_MAP

    @property
    def caches(self) -> bool:
        """Whether the stage is a cache."""
        return "Cache" in self.kind


class Pipeline(NamedTuple):
    """The stages from the end of a tf.data pipeline to its slowest stage.

    Attributes:
        later: The stages behind the slowest one, the last of the pipeline first.
        slowest: The slowest stage, for which the others wait.
    """

    later: list[Stage]
    slowest: Stage

    @property
    def is_ahead(self) -> bool:
        """Whether the last stage makes elements while the steps run, as after `prefetch`."""
        return any(_AHEAD.match(stage.kind) for stage in [*self.later, self.slowest][:1])

    @property
    def batch(self) -> int:
        """The elements that are batched behind the slowest stage; 0 if it is not followed by it."""
        return max(stage.batch for stage in [*self.later, self.slowest])

    def has_later(self, kind: str) -> bool:
        """Return whether there is a stage behind the slowest one whose type begins so."""
        return any(stage.kind.startswith(kind) for stage in self.later)


@dataclasses.dataclass
class _Node:
    """A stage of a pipeline, its input stages by type (`before`), and the seconds of its calls."""

    kind: str
    name: str = ""
    parallelism: int = 0
    tunes: bool = False
    batch: int = 0
    seconds: float = 0.0
    before: dict[str, _Node] = dataclasses.field(default_factory=dict)


def find_pipeline(events: Sequence[Event]) -> Pipeline | None:
    """Return the slow stages of the pipeline that the steps wait for, or None if none ran.

    The search for the slowest stage starts at the end of the pipeline. It moves to the slowest
    input of a stage if that input takes at least half of the stage's time, or if the stage does no
    work of its own. Other pipelines count as inputs of a generator.
    """
    roots = _pipelines([event for event in events if event.name.startswith(_ITERATOR)])
    if not roots:
        return None
    step_threads = {event.thread for event in events if "step_num" in event.args}
    # The slowest pipeline on a thread of the steps, or of all if no step was recorded.
    keys = [key for key in roots if key[1] in step_threads] or list(roots)
    main = max(keys, key=lambda key: roots[key].seconds)
    others = [root for key, root in roots.items() if key != main]
    path = [roots[main]]
    while True:
        node = path[-1]
        before = list(node.before.values()) + (others if node.kind == _GENERATOR else [])
        earlier = max(before, key=lambda stage: stage.seconds, default=None)
        if earlier is None or (earlier.seconds < node.seconds / 2 and node.kind not in _IDLE):
            break
        path.append(earlier)
    stages = []
    for node, following in zip(path, [*path[1:], earlier], strict=True):
        own = node.seconds - min(node.seconds, following.seconds if following else 0.0)
        share = own / max(path[0].seconds, own, 1e-12)
        kind = re.sub(r"V\d+$", "", node.kind)
        stages.append(Stage(node.name, kind, node.parallelism, share, own, node.tunes, node.batch))
    return Pipeline([stage for stage in stages[:-1] if stage.kind != "Root"], stages[-1])


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
            if kind.endswith(_WITHIN):  # its event lies within that of the stage
                outer = kind.removesuffix(_WITHIN)
                node = node.before.setdefault(outer, _Node(outer))
            node = node.before.setdefault(kind, _Node(kind))
        name = event.args.get("name", "")
        node.name = "" if _GIVEN_BY_TENSORFLOW.search(name) else name
        node.tunes = node.tunes or event.args.get("autotune") == "true"
        batch = event.args.get("batch_size", "")
        node.batch = int(batch) if batch.isdecimal() else 0
        calls = event.args.get("parallelism", "")  # may be "unavailable"
        node.parallelism = max(node.parallelism, int(calls) if calls.isdecimal() else 0)
        node.seconds += event.length / 1e6
    return pipelines
