"""The stage of a tf.data pipeline that the others wait for."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from .profiles import Event

_ITERATOR = "Iterator::"
_ROOT = "Iterator::Root"
_GENERATOR = "Generator"  # which may run a pipeline of its own, as our caches of ids do
_IDLE = ("Root", "Prefetch", "Options", "Zip", "FlatMap", "FiniteSkip")
_GIVEN_BY_TENSORFLOW = re.compile(r"Dataset(V\d+)?:\d+$|/_\d+$")


class Stage(NamedTuple):
    """A stage of the pipeline.

    name: that its author gave it (`name=` of tf.data's methods), or empty. kind: such as
    ParallelMapV2. parallelism: calls at a time, 0 where the stage has no such thing. share: of the
    time that the stage after it waited, what no earlier stage accounts for. seconds: that time.
    """

    name: str
    kind: str
    parallelism: int
    share: float
    seconds: float

    def __str__(self) -> str:
        kind = re.sub(r"V\d+$", "", self.kind)
        return f"{kind}({self.name})" if self.name else kind


@dataclasses.dataclass
class _Node:
    """A stage with those before it; `seconds` that it kept the one after it waiting."""

    kind: str
    name: str = ""
    parallelism: int = 0
    seconds: float = 0.0
    before: dict[str, _Node] = dataclasses.field(default_factory=dict)


def slowest(events: Sequence[Event]) -> Stage | None:
    """The stage that the pipeline waits for; None if no pipeline ran in the profile.

    From the end of the pipeline on, the blame for a wait passes to the stage before as long as that
    accounts for half of it, and always through stages that do no work of their own.
    """
    roots = _pipelines([event for event in events if event.name.startswith(_ITERATOR)])
    if not roots:
        return None
    stepping = {event.thread for event in events if "step_num" in event.args}
    main = _of_steps(roots, stepping)
    nested = [root for at, root in roots.items() if at != main]
    first = node = roots[main]
    while True:
        before = list(node.before.values())
        if node.kind == _GENERATOR:
            before += nested
        earlier = max(before, key=lambda stage: stage.seconds, default=None)
        if earlier is None or (earlier.seconds < node.seconds / 2 and node.kind not in _IDLE):
            break
        node = earlier
    alone = node.seconds - min(node.seconds, earlier.seconds if earlier else 0.0)
    share = alone / max(first.seconds, alone, 1e-12)
    return Stage(node.name, node.kind, node.parallelism, share, alone)


def _of_steps(roots: dict[tuple[str, str], _Node], stepping: set[str]) -> tuple[str, str]:
    """The pipeline that the steps iterate over: of several, the one that they wait for longest."""
    own = [at for at in roots if at[1] in stepping] or list(roots)
    return max(own, key=lambda at: roots[at].seconds)


def _pipelines(events: Sequence[Event]) -> dict[tuple[str, str], _Node]:
    """The pipelines of these iterators' events, by their root's id and its thread."""
    parents = {event.args["id"]: event.args.get("parent_id") for event in events}
    roots = {
        event.args["id"]: (event.args["id"], event.thread)
        for event in events
        if event.name == _ROOT
    }
    found = {at: _Node("Root") for at in roots.values()}
    for event in events:
        top = event.args["id"]
        while parents.get(top) is not None:
            top = parents[top]
        if top not in roots:  # its root waited for longer than the recording, and is not in it
            found.setdefault(("", ""), _Node("Root"))
        node = found[roots.get(top, ("", ""))]
        path = event.args.get("long_name", event.name).split("::")[2:]
        for kind in (re.sub(r"\[\d+\]$", "", part) for part in path):
            node = node.before.setdefault(kind, _Node(kind))
        name = event.args.get("name", "")
        node.name = "" if _GIVEN_BY_TENSORFLOW.search(name) else name
        calls = event.args.get("parallelism", "")  # may be "unavailable"
        node.parallelism = max(node.parallelism, int(calls) if calls.isdecimal() else 0)
        node.seconds += event.length / 1e6
    return found
