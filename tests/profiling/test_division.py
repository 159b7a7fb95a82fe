import pytest

from app.profiling import profile_report
from app.profiling.division import Division, divide
from app.profiling.operations import collect_runs
from app.profiling.stages import find_pipeline
from tests.profiling.events import event, iterator, operation

PARTS = ("input", "host_to_device", "host_compute", "launch", "device_compute")
POOL, EIGEN = "tf_data_private_threadpool/2", "tf_numa_-1_Eigen/3"


def of(*events, cores=2):
    """The division of events."""
    return divide(events, collect_runs(events), cores)


def divided(**shares):
    return Division(9, 1.0, dict.fromkeys(PARTS, 0.0) | shares, False)


def stream(name, start, length, line="Stream #14(Compute)"):
    return event(name, start, length, line, "/device:GPU:0")


WAIT = "IteratorGetNextOp::DoCompute"
STEPS = (
    event("step", 0, 1000, step_num="1"),
    event("step", 1000, 2000, step_num="2"),
    event(WAIT, 900, 400),  # across both
    event(WAIT, 1200, 300),  # counted once
)


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        ({"input": 0.20, "device_compute": 0.8}, "input-bound"),
        ({"input": 0.19, "device_compute": 0.81}, "device-bound"),
        ({"device_compute": 0.3, "launch": 0.6, "host_compute": 0.1}, "launch-bound"),
        ({"device_compute": 0.3, "launch": 0.3, "host_compute": 0.4}, "host-bound"),
        ({"device_compute": 0.45, "host_compute": 0.4}, "device-bound"),
        ({"device_compute": 0.4, "host_to_device": 0.6}, "copy-bound"),
    ],
)
def test_verdicts(shares, verdict):
    assert divided(**shares).verdict == verdict
    assert verdict in profile_report.MEANINGS


def test_operations_of_the_input_that_take_the_cores_count_as_input():
    assert divided(input=0.1, device_compute=0.9)._replace(competing=0.1).verdict == "input-bound"


def test_a_moment_of_a_gpu_counts_once():
    found = of(
        *STEPS,
        stream("kernel", 1400, 700),  # while the host waits the device works
        stream("MemcpyH2D", 2050, 150),
        stream("2", 1000, 2000, "Steps"),  # what xprof derives from the others
        event("ExecutorState::Process", 1300, 1000),
    )
    assert found.calls == 2 and found.milliseconds == pytest.approx(1.5) and not found.cpu_only
    times = {"input": 500, "device_compute": 700, "host_to_device": 100, "launch": 100}
    expected = {part: time / 3000 for part, time in times.items()} | {"host_compute": 1600 / 3000}
    assert found.shares == pytest.approx(expected)
    assert found.competing == found.crowding == 0


def test_a_moment_of_a_cpu_counts_once():
    """Between operations, time of the executor is `launch`, and the rest is Python's."""
    get_next = {"name": "IteratorGetNext", "kernel_type": "IteratorGetNext"}
    found = of(
        *STEPS,
        event("ExecutorState::Process", 1500, 1000, "tf_Compute/1"),
        event("ExecutorState::ProcessAsync::Start", 900, 600, "tf_Compute/2", **get_next),
        operation("loss/Mul:Mul", 1600, 600),
        operation("loss/Add:Add", 2000, 400, "tf_Compute/2"),
        operation("PyFunc:PyFunc", 0, 3000, POOL),
    )
    times = {"input": 600, "device_compute": 800, "host_to_device": 0, "launch": 200}
    expected = {part: time / 3000 for part, time in times.items()} | {"host_compute": 1400 / 3000}
    assert found.cpu_only and found.shares == pytest.approx(expected)


def test_an_operation_ends_where_the_executor_starts_others_within_it():
    call = {"name": "loss/PartitionedCall", "kernel_type": "PartitionedCall"}
    found = of(
        event("step", 0, 100, step_num="1"),
        event("ExecutorState::ProcessAsync::Start", 0, 90, "tf_Compute/1", **call),
        event("ExecutorState::ProcessAsync::Done", 40, 50, "tf_Compute/1", **call),
        operation("loss/Mul:Mul", 60, 10, "tf_Compute/1"),
    )
    expected = {"device_compute": 0.5, "launch": 0.4, "host_compute": 0.1}
    assert {part: found.shares[part] for part in expected} == pytest.approx(expected)


def test_the_time_to_trace_a_function_does_not_count():
    found = of(
        event("step", 0, 1000, step_num="0"),
        event("train", 100, 900, tf_function_call="traced-nonXla", tracing_count="1"),
        event(WAIT, 800, 200),
        event("step", 1000, 300, step_num="1"),
        event("train", 1000, 300, tf_function_call="notTraced-nonXla"),
    )
    assert found.milliseconds == pytest.approx(0.25)
    assert found.shares["input"] == pytest.approx(0.2 / 0.5)


def test_operations_of_the_input_slow_the_steps_where_cores_are_few():
    """Two cores may be one, so that two threads have 5/8 of its speed each; eight are enough."""
    events = (
        event("step", 0, 1000, step_num="1"),
        event(WAIT, 0, 200),
        operation("loss/Mul:Mul", 200, 800),
        operation("RegexSplit:RegexSplit", 0, 1000, POOL),
    )
    found = of(*events)
    assert found.competing == pytest.approx(0.8 * (1 - 5 / 8))
    assert found.crowding == pytest.approx(1800 / 2000)
    assert of(*events, cores=8).competing == 0
    # Helpers take parts of an operation, so that the step alone keeps both cores busy.
    crowded = of(*events, event("ThreadpoolListener::Region", 200, 800, EIGEN))
    assert crowded.competing == pytest.approx(0.8 * (1 - 2 / 3))
    # A Python function may wait.
    waits = (*events[:3], operation("PyFunc:PyFunc", 0, 1000, POOL))
    assert of(*waits).competing == 0


def test_what_runs_between_steps_of_an_epoch_counts():
    """But not a long stop, nor what is between epochs."""
    starts = {0: 0, 1: 1200, 2: 2400, 3: 9000, 4: 10200}
    events = [event("step", start, 1000, step_num=str(n)) for n, start in starts.items()]
    found = of(*events, event("step", 11_300, 1000, step_num="0"))
    assert found.calls == 6 and found.milliseconds == pytest.approx((6 * 1000 + 3 * 200) / 6e3)
    assert found.shares["host_compute"] == 1


def test_a_profile_without_steps():
    found = of(event(WAIT, 0, 5))
    assert found.calls == 0 and set(found.shares.values()) == {0} and found.long_waits is None


def test_few_calls_are_not_to_be_trusted():
    assert not divided()._replace(calls=4).trusted
    assert divided()._replace(calls=5).trusted


def recorded(wait, steps=12):
    """Two epochs of Keras, whose numbers of steps begin with 0; the first step waits."""
    events, now = [], 0.0
    for _ in range(2):
        for number in range(steps):
            waiting = wait if number == 0 else 100.0
            events.append(event("Profiled batch", now, waiting + 2000, step_num=str(number)))
            events.append(event(WAIT, now + 50, waiting, "pool"))
            now += waiting + 2500
    return events


def test_the_first_step_of_an_epoch_waits():
    waits = of(*recorded(8e6), iterator("Root::Shuffle", 0, 9, id=1)).long_waits
    assert waits.steps == [0, 0] and waits.seconds == pytest.approx(8.0)
    assert waits.share == pytest.approx(16e6 / (16e6 + 24 * 2000 + 22 * 100 + 22 * 500))
    assert str(waits) == (
        "2 steps wait 8 s for input, 100% of the time; such a step is normally the first of an "
        "epoch"
    )


def test_no_step_waits_far_longer_than_others():
    assert of(*recorded(30e3)).long_waits is None
    # Each step waits as long.
    assert of(*recorded(8e6, steps=1)).long_waits is None


def find_slowest(events):
    found = find_pipeline(events)
    return found and found.slowest


STEP = event("train 4", 0, 1000, step_num="4")


def pipeline(**waits):
    """ahead <- rows (parallel) <- tokenize (parallel, 2 at a time) <- read, and what each waits."""
    waits = {"root": 900, "ahead": 890, "rows": 880, "tokenize": 0, "read": 0} | waits
    return [
        STEP,
        iterator("Root", 0, waits["root"], id=1),
        iterator("Root::Prefetch", 5, waits["ahead"], id=2, parent=1, name="ahead"),
        iterator(
            "Root::Prefetch::ParallelMapV2", 0, waits["rows"], "a", id=3, parent=2, name="rows"
        ),
        iterator(
            "Root::Prefetch::ParallelMapV2::ParallelMapV2",
            0,
            waits["tokenize"],
            "b",
            id=4,
            parent=3,
            name="tokenize",
            parallelism="2",
        ),
        iterator(
            "Root::Prefetch::ParallelMapV2::ParallelMapV2::Generator",
            0,
            waits["read"],
            "c",
            id=5,
            parent=4,
            name="GeneratorDataset:7",
        ),
    ]


@pytest.mark.parametrize(
    ("waits", "name", "kind", "share"),
    [
        ({}, "rows", "ParallelMap", 880 / 900),
        ({"tokenize": 700}, "tokenize", "ParallelMap", 700 / 900),
        ({"tokenize": 800, "read": 600}, "", "Generator", 600 / 900),
        ({"tokenize": 800, "read": 300}, "tokenize", "ParallelMap", 500 / 900),
        ({"tokenize": 300}, "rows", "ParallelMap", 580 / 900),
        # Nothing waits for the pipeline: it is still said which stage takes longest.
        ({"root": 3, "ahead": 2, "rows": 500}, "rows", "ParallelMap", 1.0),
    ],
)
def test_the_stage_that_accounts_for_most_of_the_wait(waits, name, kind, share):
    found = find_slowest(pipeline(**waits))
    assert (found.name, found.kind) == (name, kind)
    assert found.share == pytest.approx(share)
    assert found.parallelism == (2 if name == "tokenize" else 0)


def test_how_a_stage_is_called():
    assert str(find_slowest(pipeline(tokenize=700))) == "ParallelMap(tokenize)"
    assert str(find_slowest(pipeline(tokenize=800, read=600))) == "Generator"


def test_iterators_of_a_stage_that_is_built_again_for_each_epoch_are_one_stage():
    found = find_slowest(
        [
            STEP,
            iterator("Root", 0, 900, id=1),
            iterator("Root::FlatMap", 0, 890, id=2, parent=1),
            iterator("Root::FlatMap[0]::Map", 0, 400, id=3, parent=2, name="slow"),
            iterator("Root::FlatMap[1]::Map", 450, 400, id=4, parent=2, name="slow"),
        ]
    )
    assert found.name == "slow" and found.seconds == pytest.approx(800e-6)


def test_a_generator_s_own_pipeline_is_looked_into():
    inner = [
        iterator("Root", 0, 600, "pool", id=10),
        iterator("Root::ParallelMapV2", 0, 590, "pool", id=11, parent=10, name="tokenize"),
    ]
    assert find_slowest(pipeline(tokenize=800, read=700) + inner).name == "tokenize"
    # But one that nobody waits for is not.
    assert find_slowest(pipeline() + inner).name == "rows"


def test_the_pipeline_of_the_steps_is_the_one_that_counts():
    other = [
        iterator("Root", 0, 5000, "evaluation", id=20),
        iterator("Root::Map", 0, 5000, "evaluation", id=21, parent=20, name="other"),
    ]
    assert find_slowest(other + pipeline()).name == "rows"
    assert find_slowest(other).name == "other"


def test_a_root_that_waited_longer_than_the_recording():
    assert find_slowest(pipeline()[2:]).name == "rows"


def test_a_profile_without_a_pipeline():
    assert find_slowest([STEP]) is None


def test_a_cache_that_is_filled():
    """Its work is in an iterator beside it, by the path, whose event lies within its own."""
    events = [
        STEP,
        iterator("Root", 0, 900, id=1),
        iterator("Root::FileCache", 0, 890, id=2, parent=1),
        iterator("Root::FileCacheImpl", 0, 880, id=3, parent=2),
        iterator("Root::FileCacheImpl::Map", 0, 800, id=4, parent=3, name="slow"),
    ]
    found = find_pipeline(events)
    assert str(found.slowest) == "Map(slow)" and found.slowest.share == pytest.approx(8 / 9)
    assert found.later[0].caches and not found.slowest.caches
    assert find_pipeline(events[:-1]).slowest.caches


def test_the_stages_behind_the_slowest():
    events = [
        STEP,
        iterator("Root", 0, 900, id=1),
        iterator("Root::Prefetch", 0, 890, id=2, parent=1, name="inject/prefetch_Batch/_5"),
        iterator("Root::Prefetch::BatchV2", 0, 880, id=3, parent=2, batch_size="32"),
        iterator("Root::Prefetch::BatchV2::ShuffleV3", 0, 870, id=4, parent=3),
        iterator(
            "Root::Prefetch::BatchV2::ShuffleV3::MapAndBatch",
            0,
            860,
            id=5,
            parent=4,
            name="fused(MapDataset:1,BatchDatasetV2:2)",
            autotune="true",
            parallelism="unavailable",
        ),
    ]
    found = find_pipeline(events)
    assert [str(stage) for stage in found.later] == ["Prefetch", "Batch", "Shuffle"]
    assert str(found.slowest) == "MapAndBatch" and found.slowest.tunes and found.slowest.maps
    assert found.is_ahead and found.batch == 32
    assert found.has_later("Shuffle") and not found.has_later("Cache")
    bare = find_pipeline(
        [STEP, iterator("Root", 0, 9, id=1), iterator("Root::BatchV2", 0, 8, id=2, parent=1)]
    )
    assert not bare.is_ahead and bare.later == []
