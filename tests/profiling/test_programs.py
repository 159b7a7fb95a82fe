"""Profiles of steps that XLA compiled to one program."""

import pytest

from app.profiling import profile_report
from app.profiling.profile_report import diagnose, text
from app.profiling.profiles import kernels_of, read_programs
from app.settings import Config, InputConfig
from tests.profiling import gpu_traces
from tests.profiling.gpu_traces import BANDWIDTH, DIM, IDS, STEPS
from tests.profiling.slow_programs import PROGRAMS, record

CONFIG = Config(input=InputConfig(steps_per_call=STEPS))
ROWS = IDS * DIM * 4  # bytes


@pytest.fixture(scope="module")
def program():
    return gpu_traces.program(rows=1000)


def diagnosed(folder, program, **given):
    return profile_report.diagnose(gpu_traces.write(folder, program, **given), CONFIG)


def by_source(program):
    return {k.source: k.bytes for _, k in kernels_of(program.hlo_module)}


def test_kernels_move_the_rows_that_they_need(program):
    """A gather reads and writes rows; a scatter reads new rows, and writes them; both read ids."""
    moved = by_source(program)
    sizes = sorted(size for source, size in moved.items() if "/" in source and size > 1000)
    assert sizes == [2 * ROWS + IDS * 4] * 2
    assert by_source(gpu_traces.program(rows=100_000)) == moved


def test_a_compiled_call(program, tmp_path):
    found = diagnosed(tmp_path, program)
    assert found.division.verdict == "device-bound" and not found.division.cpu_only
    assert found.division.shares["device_compute"] == pytest.approx(2 / 2.05, rel=0.02)
    assert found.kernels.number == pytest.approx(3, rel=0.02)  # the last ones end after the call
    assert found.kernels.bytes == pytest.approx(2 * (2 * ROWS + IDS * 4), rel=0.02)
    seconds = found.milliseconds / 1e3
    assert found.kernels.bandwidth == pytest.approx(found.kernels.bytes / seconds / BANDWIDTH)
    assert found.work.parts["update"] == pytest.approx(2 / 3)  # the gather is a part of it
    assert [(o.name, o.kind) for o in found.work.operations if o.part] == [
        ("update/add", "broadcast_add_fusion"),
        ("update/ResourceScatterUpdate", "wrapped_scatter"),
    ]
    told = profile_report.text(found)
    assert "kernels    3 a step, which read and write 0.05" in told
    assert "of what the GPU's memory can" in told and "XLA_FLAGS" not in told
    assert profile_report.record(found)["kernels"] == found.kernels._asdict()


def test_kernels_that_are_started_one_by_one_because_of_the_profile(program, tmp_path):
    """What it takes to start them says nothing of a run without a profile."""
    found = diagnosed(tmp_path, program, length=1.0, gap=3.0)
    assert found.division.shares["launch"] > 0.7 and found.division.verdict == "device-bound"
    assert "; `launch` is partly the profile's own" in profile_report.text(found)
    change, *others = found.changes
    assert change.what.startswith("XLA_FLAGS=--xla_enable_command_buffers_during_profiling=true")
    assert change.speedup is None and "75% of the time" in change.why
    assert not any("batch_tokens" in other.what for other in others)


def test_kernels_of_graphs(program, tmp_path):
    """They are known by their own names; what starts graphs is the run's own."""
    found = diagnosed(tmp_path / "a", program, graphs=True)
    alone = diagnosed(tmp_path / "b", program)
    assert found.work == alone.work and found.kernels == alone.kernels
    assert found.division.verdict == "device-bound"
    slow = diagnosed(tmp_path / "c", program, length=1.0, gap=3.0, graphs=True)
    assert slow.division.verdict == "launch-bound"
    assert [change.what for change in slow.changes] == ["--batch_tokens=8192"]


def test_a_program_that_is_not_in_the_profile(program, tmp_path):
    """A kernel then has the source that its event has."""
    profile = gpu_traces.write(tmp_path, program)
    (file,) = profile.iterdir()
    space = gpu_traces.xplane_pb2.XSpace.FromString(file.read_bytes())
    del space.planes[2]
    file.write_bytes(space.SerializeToString())
    assert read_programs(file) == ({}, BANDWIDTH)
    found = profile_report.diagnose(profile, CONFIG)
    assert found.kernels.number > 2 and found.kernels.bytes == 0 and "update" in found.work.parts
    assert "which read" not in profile_report.text(found)


# Profiles of slow programs of Keras: each cause is named, and nothing that cannot help.


# The changes by the begin of what `lexrow profile` proposes.
CHANGES = {
    "cache()": "cache",
    "batch()": "batch",
    "map(num_parallel_calls=16": "unbounded",
    "num_parallel_calls": "parallel",
    "shuffle()": "shuffle",
    "prefetch": "prefetch",
    "steps_per_execution": "steps",
    "a batch of 4 times": "examples",
    "lexrow.keras.RowEmbedding": "rows",
}

INPUT = ("cache", "batch", "unbounded", "parallel", "shuffle", "prefetch", "rows")
# For each program what must be proposed, and what must not, by the names of `CHANGES`.
EXPECTED = {
    "small_batches": (("steps", "examples"), ("rows", "unbounded", "shuffle", "prefetch")),
    "generator": (("cache", "unbounded"), ("prefetch", "batch", "parallel", "rows")),
    "generator_prefetch": (("cache", "unbounded"), ("prefetch", "batch", "parallel", "rows")),
    "python_map": (("cache", "batch", "unbounded"), ("prefetch", "parallel", "rows")),
    "waiting_map": (("cache", "batch", "unbounded"), ("prefetch", "parallel", "rows")),
    "serial_map": (("cache", "parallel"), ("prefetch", "unbounded", "batch", "rows")),
    "shuffle_after_map": (("cache",), ("prefetch", "unbounded", "parallel", "batch", "rows")),
    "bare": (("cache", "unbounded", "prefetch"), ("batch", "parallel", "rows")),
    "small_table": (("steps", "examples"), INPUT),
    "dense_adam": (("rows", "examples"), INPUT[:-1]),
}
QUICK = ("generator",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Your input ran out of data")
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS],
)
def test_causes_are_named(tmp_path, name):
    found = diagnose(record(name, tmp_path), None)
    assert found.division.trusted
    named = {
        changed
        for change in found.changes
        for begin, changed in CHANGES.items()
        if change.what.startswith(begin)
    }
    present, absent = EXPECTED[name]
    assert named >= set(present) and named.isdisjoint(absent), text(found)
