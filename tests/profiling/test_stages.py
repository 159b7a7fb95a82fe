import pytest

from app.profiling.stages import find_pipeline
from tests.profiling.events import event, iterator


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
