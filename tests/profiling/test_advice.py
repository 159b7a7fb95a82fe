import dataclasses

import pytest

from app.profiling import advice
from app.profiling.advice import advise
from app.profiling.division import Division
from app.profiling.operations import Work
from app.profiling.stages import Pipeline, Stage
from app.settings import (
    Config,
    InputConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    checks,
    flag_values,
)
from app.settings.words_config import WordsConfig

SHARES = dict.fromkeys(("input", "host_to_device", "host_compute", "launch", "device_compute"), 0.0)
OTHER_MODEL = ModelConfig(dim=64)
# With the default of negative sampling for an option of another optimizer.
ADAM = OptimizerConfig(optimizer="lazy_adam", learning_rate_power=-0.3)


def divided(cpu_only=True, **shares):
    return Division(9, 10.0, SHARES | shares, cpu_only)


def stage(name="tokenize", kind="ParallelMap", parallelism=2, **given):
    """A stage that is busy for all of the 90 ms of the division."""
    return Stage(name, kind, parallelism, 0.9, 0.09, **given)


FILL = Stage("fill", "Map", 0, 0.0, 0.0)
AHEAD = Stage("", "Prefetch", 0, 0.0, 0.0)


def asked(division, config, stage=None, parts=None, cores=2, later=(FILL,)):
    work, pipeline = Work([], parts or {}), Pipeline(list(later), stage) if stage else None
    return [
        (change.what, change.speedup)
        for change in advise(division, pipeline, [], work, config, cores)
    ]


WAITING = divided(input=0.75, device_compute=0.25)


@pytest.mark.parametrize(
    ("given", "epochs", "slowest", "expected"),
    [
        # Text is tokenised again in each epoch.
        ({"cache": "none"}, 5, stage(), [("--cache=memory", 4.0)]),
        # Only one epoch, and all cores at work.
        ({}, 1, stage(), []),
        # What a cache keeps is not what takes long.
        ({}, 5, stage("rows"), []),
        # The cache was being filled.
        ({"cache": "memory"}, 5, stage(), [("--profile_steps=START,STOP", 4.0)]),
        ({}, 5, stage(), [("--profile_steps=START,STOP", 4.0)]),
        # What no other process and no other thread makes.
        ({}, 5, stage("fill", "Map", 0), []),
        ({"map_parallelism": 1}, 1, stage("", "ParallelInterleaveV4", 1), []),
        ({"map_parallelism": 1}, 1, stage(parallelism=1), [("--map_parallelism=-1", 2.0)]),
        (
            {"map_parallelism": 1, "prefetch": 0, "cache": "none"},
            3,
            stage(parallelism=1),
            [("--cache=memory", 4.0), ("--map_parallelism=-1", 2.0), ("--prefetch=-1", 4 / 3)],
        ),
    ],
)
def test_of_a_run_that_waits_for_its_input(given, epochs, slowest, expected):
    config = Config(input=InputConfig(**given), run=RunConfig(epochs=epochs))
    assert asked(WAITING, config, slowest) == expected


def test_no_gain_is_more_than_the_cores_or_the_shorter_part_allow():
    """So much is waited for that prefetch helps little, and operations keep the cores busy."""
    config = Config(input=InputConfig(prefetch=0, map_parallelism=1), run=RunConfig(epochs=1))
    slowest = stage(parallelism=1)
    assert asked(divided(input=0.97), config, slowest) == [("--map_parallelism=-1", 2.0)]
    # tf.data adds a prefetch by itself.
    half = divided(input=0.5)
    assert asked(half, config, slowest, later=(AHEAD, FILL)) == [("--map_parallelism=-1", 2.0)]
    assert asked(half._replace(crowding=0.9), config, slowest) == [
        ("--prefetch=-1", pytest.approx(1 / 0.9)),
        ("--map_parallelism=-1", pytest.approx(1 / 0.9)),
    ]


def test_a_cache_is_also_for_runs_that_are_not_input_bound():
    found = divided(input=0.15, device_compute=0.85)
    assert asked(found, Config(input=InputConfig(cache="memory")), stage("rows")) == []
    config = Config(input=InputConfig(cache="none"), run=RunConfig(epochs=2))
    assert asked(found, config, stage()) == [("--cache=memory", pytest.approx(1 / 0.85))]


def test_of_a_tokenizer_that_takes_the_cores_of_the_steps():
    """Its steps hardly wait."""
    config = Config(input=InputConfig(cache="none", map_parallelism=1), run=RunConfig(epochs=2))
    found = divided(input=0.1, device_compute=0.9)._replace(competing=0.3, crowding=1.0)
    assert asked(found, config, stage(parallelism=1)) == [
        ("--cache=memory", pytest.approx(1 / 0.6))
    ]


def test_parallel_calls_that_would_take_the_cores_of_the_steps():
    """The steps lose more to the calls that run already than they wait for them."""
    config = Config(input=InputConfig(map_parallelism=1), run=RunConfig(epochs=1))
    found = divided(input=0.11, device_compute=0.89)._replace(crowding=0.8)
    assert asked(found, config, stage(parallelism=1)) == [
        ("--map_parallelism=-1", pytest.approx(1 / 0.89))
    ]
    changes = asked(found._replace(competing=0.25), config, stage(parallelism=1))
    assert not any("map_parallelism" in what for what, _ in changes)


def test_of_a_host_that_is_busy():
    """Every cause is named, whatever limits the speed."""
    config = Config(input=InputConfig(steps_per_call=8))
    (only,) = advise(divided(host_compute=0.6), None, [], Work([], {}), config, 2)
    assert (only.what, only.new_workdir) == ("--steps_per_call=16", True)
    assert only.speedup == pytest.approx(1 / 0.7)
    launching = divided(launch=0.6, device_compute=0.4)
    assert asked(launching, Config()) == [("--batch_tokens=8192", pytest.approx(1 / 0.7))]
    all_three = divided(input=0.4, launch=0.3, host_compute=0.2, device_compute=0.1)
    assert asked(all_three, Config(input=InputConfig(prefetch=0, steps_per_call=8))) == [
        ("--prefetch=-1", pytest.approx(1 / 0.6)),
        ("--batch_tokens=8192", pytest.approx(1 / 0.85)),
        ("--steps_per_call=16", pytest.approx(1 / 0.9)),
    ]


def test_of_a_step_that_is_the_work(monkeypatch):
    computing = divided(device_compute=0.8)
    own = dataclasses.replace(ADAM, beta_1=0.8)
    plain = Config(model=OTHER_MODEL)
    assert asked(computing, plain) == []
    updates = {"update": 0.5}
    assert asked(computing, Config(model=OTHER_MODEL, optimizer=ADAM), parts=updates) == [
        ("--optimizer=rowwise_adagrad", pytest.approx(1 / 0.8))
    ]
    assert asked(computing, plain, parts=updates) == []
    assert asked(computing, Config(model=OTHER_MODEL, optimizer=own), parts=updates) == []
    exact = Config(model=ModelConfig(dim=64, compute_dtype="float32"))
    monkeypatch.setattr(advice, "has_fast_bfloat16", lambda: True)
    assert asked(computing, exact) == [("--compute_dtype=auto", 1.32)]
    assert asked(divided(cpu_only=False, device_compute=0.8), exact) == []
    monkeypatch.setattr(advice, "has_fast_bfloat16", lambda: False)
    assert asked(computing, exact) == []
    assert asked(computing, Config()) == []
    assert asked(computing, None) == []


@pytest.mark.parametrize("cache", ["none", "memory"])
@pytest.mark.parametrize("name", ["tokenize", "rows", "fill", "read", ""])
@pytest.mark.parametrize("verdict", ["input", "launch", "host_compute", "device_compute"])
def test_no_advice_is_refused_by_the_flags(cache, name, verdict):
    config = WordsConfig(
        input=InputConfig(cache=cache, prefetch=0, map_parallelism=1),
        optimizer=ADAM,
        run=RunConfig(workdir="w"),
    )
    checks.check(config)
    work, pipeline = Work([], {"update": 0.9}), Pipeline([FILL], stage(name))
    for change in advise(divided(**{verdict: 1.0}), pipeline, [], work, config, 2):
        if change.what.startswith("--"):
            words = change.what.replace("START,STOP", "20,40").split()
            given = dict(word[2:].split("=") for word in words)
            values = flag_values.by_name(config)
            typed = {flag: type(values[flag])(value) for flag, value in given.items()}
            checks.check(flag_values.from_names(values | typed))
