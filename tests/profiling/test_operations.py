import pytest

from app.profiling.operations import by_thread, collect_runs, collect_work, nested
from tests.profiling.events import event, iterator, operation

ASYNC = "ExecutorState::ProcessAsync::Start"


def work_of(events):
    return collect_work(collect_runs(events))


def test_copies_of_an_operation_count_as_one_and_phases_sum():
    found = work_of(
        [
            operation("gather/ResourceGather:ResourceGather", 0, 10),
            operation("gather/ResourceGather_1:ResourceGather", 10, 10),
            operation("gradient_tape/loss/MatMul_2/MatMul_1_3:_MklBatchMatMulV2", 20, 50),
            operation("loss/MatMul_3:_MklBatchMatMulV2", 70, 20),
            operation("elsewhere/Add:AddV2", 90, 10),
        ]
    )
    assert [(o.name, o.kind, o.part, o.count, o.share) for o in found.operations] == [
        ("gradient_tape/loss/MatMul/MatMul", "_MklBatchMatMulV2", "gradient", 1, 0.5),
        ("gather/ResourceGather", "ResourceGather", "gather", 2, 0.2),
        ("loss/MatMul", "_MklBatchMatMulV2", "loss", 1, 0.2),
        ("elsewhere/Add", "AddV2", "", 1, 0.1),
    ]
    assert found.operations[0].seconds == pytest.approx(50e-6)
    assert found.parts == pytest.approx({"gradient": 0.5, "gather": 0.2, "loss": 0.2, "": 0.1})


def test_what_xla_runs_counts_for_the_operation_that_holds_it():
    found = work_of(
        [
            event(ASYNC, 0, 40, "tf_Compute/1", name="loss/PartitionedCall_7", kernel_type="Call"),
            event("fusion", 10, 20, "tf_Compute/1", hlo_op="fusion"),
        ]
    )
    (only,) = found.operations
    assert (only.name, only.kind, only.part, only.count) == (
        "loss/PartitionedCall",
        "Call",
        "loss",
        1,
    )
    assert only.seconds == pytest.approx(40e-6)


def test_an_operation_of_the_pipeline_on_a_thread_of_the_steps():
    found = work_of(
        [iterator("Root::Map", 0, 50, id=1), operation("RegexSplit:RegexSplit", 10, 30, "python")]
    )
    assert [(o.name, o.part) for o in found.operations] == [("RegexSplit", "input")]


def test_copies_that_have_much_to_do():
    """The median run counts, so that one that was interrupted does not."""
    runs = [("adam/Mul", 400), ("adam/Mul", 500), ("adam/Mul_1", 20), ("adam/Mul_1", 9000)]
    runs += [("adam/Mul_1", 20)]
    (only,) = work_of(
        [
            operation(f"{name}:Mul", 10_000 * number, time)
            for number, (name, time) in enumerate(runs)
        ]
    ).operations
    assert only.count == 5 and only.large == pytest.approx(900 / 9940)


def test_what_starts_others_once_an_operation_has_ended_is_not_the_operation_s():
    done = "ExecutorState::ProcessAsync::Done"
    found = work_of(
        [
            event(ASYNC, 0, 40, "tf_Compute/1", name="loss/PartitionedCall_7", kernel_type="Call"),
            event(done, 10, 30, "tf_Compute/1", name="loss/PartitionedCall_7", kernel_type="Call"),
            operation("loss/Mul:Mul", 20, 10),
        ]
    )
    times = {o.name: o.seconds for o in found.operations}
    assert times == pytest.approx({"loss/PartitionedCall": 10e-6, "loss/Mul": 10e-6})


def test_operations_of_the_pipeline_are_apart_and_its_waits_are_none():
    pool = "tf_data_private_threadpool/2"
    found = work_of(
        [
            operation("PyFunc:PyFunc", 0, 100, pool),
            iterator("Root", 20, 70, pool, id=1),  # what the function waits for
            operation("loss/Mul:Mul", 0, 30),
        ]
    )
    assert [(o.name, o.part, round(o.share, 2)) for o in found.operations] == [
        ("PyFunc", "input", 0.5),
        ("loss/Mul", "loss", 0.5),
    ]


def test_a_device_s_operations_are_those_that_count():
    found = work_of(
        [
            operation("loss/Mul:Mul", 0, 90),
            event("volta_gemm", 0, 30, "Stream #1", "/device:GPU:0", tf_op="loss/MatMul:MatMul"),
            event("Memset", 40, 5, "Stream #1", "/device:GPU:0"),
            # What xprof derives from them.
            event("8", 0, 90, "Steps", "/device:GPU:0", tf_op="loss/MatMul:MatMul"),
        ]
    )
    assert [(o.name, o.kind, o.part, o.share) for o in found.operations] == [
        ("loss/MatMul", "MatMul", "loss", 1.0)
    ]


def test_a_profile_without_operations():
    assert work_of([]) == ([], {})


def test_an_event_owns_the_time_that_no_event_within_it_takes():
    events = [
        event("late", 60, 5),
        event("inner", 10, 20),
        event("outer", 0, 50),
        event("innermost", 12, 8),
        event("second", 30, 20),
        event("other", 0, 9, "t"),
    ]
    threads = by_thread(events)
    assert sorted(len(thread) for thread in threads) == [1, 5]
    (thread,) = (thread for thread in threads if len(thread) == 5)
    found = {e.name: ([outer.name for outer in around], own) for e, around, own in nested(thread)}
    assert found == {
        "outer": ([], 10.0),
        "inner": (["outer"], 12.0),
        "innermost": (["outer", "inner"], 8.0),
        "second": (["outer"], 20.0),
        "late": ([], 5.0),
    }


def test_of_two_that_start_together_the_longer_is_around_the_other():
    (thread,) = by_thread([event("short", 0, 1), event("long", 0, 4)])
    assert [(e.name, own) for e, _, own in nested(thread)] == [("long", 3.0), ("short", 1.0)]
