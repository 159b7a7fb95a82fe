"""What `scaling` says of its results: a table of the sides, of the exchange, and of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluation import score_report as scoring
from ..harness.options import ScalingOptions
from ..harness.report import Lines, Measure, Panel, aligned, show
from ..harness.report import panels as bars

MEASURES = (
    Measure("words_per_second", "words/s of training", ",.0f", better="higher"),
    Measure("later_words_per_second", "words/s, once compiled", ",.0f", better="higher"),
    Measure("processor_seconds", "processor s a million words", ",.2f", better="lower"),
    Measure("input_wait", "waiting for input", ".1%", better="lower"),
    Measure("exchanged_bytes", "KB a step", ",.0f", per=1e3, better="lower"),
    Measure("bytes_per_word", "bytes a word", ",.0f", better="lower"),
    Measure("calls_again", "calls again", ",.0f", better="lower"),
    Measure("total_seconds", "end to end, s", ",.1f", better="lower"),
    *(
        Measure(name, name, ".3f", better="higher", by_difference=True)
        for name in scoring.benchmarks
    ),
    Measure("words", "words", ",.0f"),
    Measure("step_words", "words a step", ",.0f"),
)
_UNSEEN = ("words", "step_words")  # in the table
_DRAWN = ("later_words_per_second", "processor_seconds", "ws353", "analogy")
_STEP = Measure("step_ms", "ms a step", ",.1f")


def title(options: ScalingOptions, words: float, cores: int) -> str:
    """What was compared."""
    runs = f"medians of {options.repeats} runs" if options.repeats > 1 else "one run"
    return (
        f"{words / options.epochs:,.0f} words, epochs {options.epochs}, dim {options.dim}, "
        f"{options.batch_tokens:,} tokens a step; all processes of a side share {cores} cores; "
        f"{runs} a side"
    )


def text(record: Mapping[str, Any]) -> str:
    """The tables, one below the other."""
    cores = record["machine"]["cores"]
    parts = [
        _sides(record["sides"]),
        f"All processes share {cores} cores here, so that words/s cannot grow with workers.",
    ]
    if record["exchange"]:
        parts.append(_exchange(record["exchange"]))
    if record["model"]:
        parts.append(_model(record["model"]))
    return "\n\n".join(parts)


def _sides(sides: Mapping[str, Any]) -> str:
    shown = [measure for measure in MEASURES if measure.key not in _UNSEEN]
    rows = [["", "of one process", *(measure.title for measure in shown)]]
    for side, own in sides.items():
        rows.append([side, _of_one(sides, own), *(show(m, own["median"][m.key]) for m in shown)])
        if len(own["runs"]) > 1:
            for number, run in enumerate(own["runs"], 1):
                rows.append([f"  run {number}", "", *(show(m, run.get(m.key)) for m in shown)])
    return aligned([list(column) for column in zip(*rows, strict=True)])


def _of_one(sides: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """The speed as a share of that of the first side, once compiled where that is known."""
    first = next(iter(sides.values()))["median"]
    for key in ("later_words_per_second", "words_per_second"):
        if first[key] and own["median"][key]:
            return f"{own['median'][key] / first[key]:.2f} x"
    return "n/a"


def _exchange(exchange: Sequence[Mapping[str, Any]]) -> str:
    known = [one for one in exchange if "left_out" not in one]
    rows = [["rows of a table", "bytes a step of a replica", _STEP.title, "tables of one, GB"]]
    rows[0].append("bytes, were all words in use")
    for one in known:
        rows.append(
            [
                f"{one['rows']:,}",
                f"{one['exchanged_bytes']:,.0f}",
                show(_STEP, one["step_ms"]),
                f"{one['table_bytes'] / 1e9:.2f}",
                f"{one['zipf_bytes']:,.0f}",
            ]
        )
    lines = ["Two replicas on the same batches, whatever the vocabulary:"]
    lines += [aligned(rows)] if known else []
    if len(known) > 1:
        lines.append(f"greatest difference in bytes: {difference(known):.2%}")
    if known:
        lines.append("Were all words in use: by Zipf's law, so that batches have more rare ones.")
    lines += [f"left out: {o['rows']:,} rows: {o['left_out']}" for o in exchange if "left_out" in o]
    return "\n".join(lines)


def difference(exchange: Sequence[Mapping[str, Any]]) -> float:
    """How much more the most bytes of a step are than the fewest, as a share of these."""
    sizes = [one["exchanged_bytes"] for one in exchange]
    return max(sizes) / min(sizes) - 1


def _model(model: Mapping[str, Any]) -> str:
    speeds = list(model["reckoned"][0]["words_per_second"]) if model["reckoned"] else []
    heads = ["", "workers", "tokens a step", "ms without network", "bytes a word"]
    heads += ["break even, Gbit/s", *(f"words/s, {speed} Gbit/s" for speed in speeds)]
    rows = [heads]
    for one in model["reckoned"]:
        rows.append(
            [
                one["strategy"],
                f"{one['workers']}",
                f"{one['step_tokens']:,}",
                f"{1e3 * one['seconds']:.2f}",
                f"{one['bytes_per_word']:,.0f}",
                f"{one['break_even_gigabits']:.1f}",
                *(f"{one['words_per_second'][speed]:,.0f}" for speed in speeds),
            ]
        )
    alone = model["shares"][0]
    lines = [
        "A model, not a measurement: workers on machines of their own, each like this one with all "
        "its cores.",
        f"Measured for it: a step of one process, {1e3 * alone['seconds']:.2f} ms "
        f"({model['step_words'] / alone['seconds']:,.0f} words/s); what one of N does in a step; "
        f"its bytes; and {1e3 * model['message_seconds']:.2f} ms for a message.",
        aligned(rows),
    ]
    lines += [
        f"left out: {one['workers']} workers: {one['left_out']}"
        for one in model["shares"]
        if "left_out" in one
    ]
    return "\n".join(lines)


def panels(record: Mapping[str, Any]) -> list[Panel | Lines]:
    """Bars of the sides; bytes against rows; words/s against workers, one panel a strategy."""
    measures = {measure.key: measure for measure in MEASURES}
    shown = bars(record, [measures[key] for key in _DRAWN])
    found: list[Panel | Lines] = [panel._replace(ours=len(panel.values)) for panel in shown]
    known = [one for one in record["exchange"] if "left_out" not in one]
    if known:
        sizes = {one["rows"]: one["exchanged_bytes"] / 1e3 for one in known}
        found.append(Lines({"exchanged": sizes}, "KB a step of a replica", "rows of a table"))
    if record["model"]:
        found += _curves(record["model"])
    return found


def _curves(model: Mapping[str, Any]) -> list[Lines]:
    alone = model["shares"][0]
    batch, one = alone["step_tokens"], model["step_words"] / alone["seconds"]
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for reckoned in model["reckoned"]:
        kind = reckoned["strategy"]
        if kind == "multi_worker":
            shared = reckoned["step_tokens"] == batch
            kind += f", {batch:,} a {'step' if shared else 'worker'}"
        by_kind.setdefault(kind, []).append(reckoned)
    found = []
    for kind, own in by_kind.items():
        values = {
            f"{speed} Gbit/s": {
                1: one / 1e6,
                **{of_n["workers"]: of_n["words_per_second"][speed] / 1e6 for of_n in own},
            }
            for speed in own[0]["words_per_second"]
        }
        found.append(Lines(values, f"model, M words/s: {kind}", "workers"))
    return found
