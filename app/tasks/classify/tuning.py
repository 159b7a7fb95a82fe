"""Search the settings of a classifier before it is trained (--tune_seconds).

A trial trains with some settings in memory and scores them on the held-out texts. Its settings are
the best ones so far, changed by random steps that become shorter, as in fastText's autotune
(src/autotune.cc). Most trials change only the learning rate and the epochs: these need no new graph
and no new features, which take longer than to train on few texts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...assembly import learning
from ...checkpoints.checkpoint import Position
from ...checkpoints.workdir import Workdir, read_settings
from ...errors import RunError, StoppedError, UsageError
from ...settings import ClassifyConfig, flag_values
from ...settings.checks import check
from ...settings.classify_config import TUNABLE
from ...system import checked_files
from ...system.console import log_progress
from ...system.files import hash_file, open_regular, replacing
from ...system.signals import asked_to_stop
from ...tables.device import DeviceTable
from ...text import corpus, reading
from ...training.job import Job
from ...training.runner import Runner
from . import classifier_export, classify_data, classify_job
from .classify_model import Classifier

_LOSSES = ("softmax", "one_vs_all")  # that --tune can choose from
_OF_GRAPH = ("word_ngrams", "dim", "loss")  # a change needs a new graph
_SAME_GRAPH = 3  # one of as many trials changes the graph
_NEW_LOSS = 0.25  # the share of these that change the loss, too
_MOST_TRIES = 100
_SMALL = {"epochs": 1, "dim": 8}  # after trials that could not end
_SURE_SHARE = 0.05  # of a trial, from which its time is known
_LONGEST_LINE = 1 << 20
_FILES = ("corpus", "heldout", "pretrained_vectors", "initial_model")
_HEADER = {
    **dict.fromkeys(_FILES, (str, None)),
    "corpus": str,
    "settings": {str: (str, int, float, bool)},
}
_TRIAL = {"settings": {str: (str, int, float)}, "score": (float, None), "seconds": float}


class Steps(NamedTuple):
    """The random steps of a setting: its bounds, and their deviations at the start and the end.

    With `is_factor`, a step multiplies by a power of two, and its deviation is of the exponent.
    """

    least: float
    most: float
    start: float
    end: float
    is_factor: bool = True


# As those of fastText, whose steps are twice as long: its search makes more trials.
_STEPS = {
    "learning_rate": Steps(0.005, 5, 1.5, 0.5),
    "epochs": Steps(1, 100, 1.5, 0.6),
    "dim": Steps(4, 300, 1.4, 0.3),
    "word_ngrams": Steps(1, 5, 1.5, 0.7, is_factor=False),
}


class Trial(NamedTuple):
    """A trial of a search.

    Attributes:
        settings: The value of each setting that is searched.
        score: The score on the held-out texts; None if the trial had to end early.
        seconds: The seconds that it took.
    """

    settings: dict[str, Any]
    score: float | None
    seconds: float


def tune(
    config: ClassifyConfig, workdir: Workdir, clock: Callable[[], float] = time.monotonic
) -> ClassifyConfig:
    """Return the settings to train with: the best ones of a search, if --tune_seconds asks for one.

    The trials are written to the workdir, and a search that was stopped goes on. Once the training
    has begun, there is no search, and the values that were found are taken again.

    Args:
        clock: Returns the time in seconds.

    Raises:
        UsageError: The texts or settings cannot be used, or are others than those of the trials.
        RunError: No trial had time to end.
        StoppedError: SIGINT or SIGTERM stopped the search.
    """
    seconds = config.tuning.tune_seconds
    if not seconds or config.run.plan_only:
        return config
    stored = read_settings(workdir.path)
    if stored:
        if stored.get("tune_seconds", 0.0) < seconds:
            raise UsageError(
                f"--tune_seconds={seconds:g}: the training in --workdir={workdir.path} has begun; "
                "give a new --workdir, with a copy of its trials.jsonl to go on with these"
            )
        return _as_begun(config, stored, workdir)
    if not (config.input.heldout or config.input.heldout_share):
        raise UsageError(
            f"--heldout_share=0: --tune_seconds={seconds:g} needs texts to score on; give a share, "
            "or --heldout=FILE"
        )
    if config.tuning.tune_bytes:
        config = with_values(config, {"fasttext_features": True})
    best = _search(config, workdir, seconds, clock)
    shown = " ".join(f"--{name}={value}" for name, value in best.settings.items())
    log_progress(f"training with the best settings, score {best.score:.4f}: {shown}")
    return with_values(config, {**best.settings, "heldout_share": 0.0})


def _as_begun(config: ClassifyConfig, stored: Mapping[str, Any], workdir: Workdir) -> Any:
    """Return settings with the values that a search found, where these are given as it began."""
    values, known = flag_values.by_name(config), _read(workdir)
    start = known[0]["settings"] if known else {}
    names = [name for name in start if name in TUNABLE and start[name] == values[name]]
    names += ["heldout_share", *(["fasttext_features"] if config.tuning.tune_bytes else [])]
    return with_values(config, {name: stored[name] for name in names})


def read_trials(workdir: Workdir) -> list[Trial]:
    """Return the finished and unfinished trials of a workdir, in order; none if it has no search.

    Raises:
        DamagedError: The file is damaged.
    """
    return [Trial(**{name: line[name] for name in _TRIAL}) for line in _read(workdir)[1:]]


def searched(config: ClassifyConfig) -> list[str]:
    """Return the names of the settings to search."""
    values = flag_values.by_name(config)
    usual = flag_values.defaults(values)
    free = [name for name in TUNABLE if values[name] == usual[name]]
    labelled = config.labelled
    has_rows = bool(labelled.pretrained_vectors or labelled.initial_model)
    kept = {
        "dim": has_rows,
        "word_ngrams": bool(labelled.initial_model),
        "loss": config.model.loss not in _LOSSES or bool(labelled.initial_model),
    }
    return [name for name in config.tuning.names or free if not kept.get(name)]


def with_values(config: ClassifyConfig, values: Mapping[str, Any]) -> Any:
    """Return settings with other values of some flags."""
    return flag_values.from_names({**flag_values.by_name(config), **values})


def suggest(
    start: Mapping[str, Any], trials: Sequence[Trial], progress: float, seed: int, several: bool
) -> dict[str, Any] | None:
    """Return the settings of the next trial, or None if all that are possible were tried.

    Args:
        start: The settings of the first trial.
        trials: The trials so far.
        progress: The share of the time that has passed.
        several: Whether texts have several labels.
    """
    if not trials:
        return dict(start)
    best = dict(_best(trials).settings if _finished(trials) else start)
    if not _finished(trials):  # too slow, or too large a file
        best |= {name: value for name, value in _SMALL.items() if name in best}
    tried = [trial.settings for trial in trials]
    if best not in tried:
        return best
    firsts = {"word_ngrams": 2, "loss": "one_vs_all" if several else None}
    for name, value in firsts.items():
        changed = {**best, name: value}
        if name in start and value and all(one[name] == start[name] for one in tried):
            return changed
    draw = np.random.default_rng((seed, len(trials)))
    names = [name for name in start if name not in _OF_GRAPH]
    if not names or len(trials) % _SAME_GRAPH == 0:
        names = list(start)
    for _ in range(_MOST_TRIES):
        changed = best | {name: _step(name, best[name], progress, draw) for name in names}
        if changed not in tried:
            return changed
    return None


def _step(name: str, value: Any, progress: float, draw: np.random.Generator) -> Any:
    """Return a value of a setting near another one."""
    if name == "loss":
        other = _LOSSES[value == _LOSSES[0]]
        return other if draw.random() < _NEW_LOSS else value
    steps = _STEPS[name]
    shortened = min(max(2 * progress - 0.5, 0), 1)  # in the middle half of the time, as fastText
    change = draw.normal(0, steps.start + (steps.end - steps.start) * shortened)
    moved = float(np.clip(value * 2**change if steps.is_factor else value + change, *steps[:2]))
    return float(f"{moved:.3g}") if name == "learning_rate" else round(moved)


def _search(
    config: ClassifyConfig, workdir: Workdir, seconds: float, clock: Callable[[], float]
) -> Trial:
    """Make trials until the time is over, and return the one of the best score."""
    start = _start(config)
    data = classify_data.load_data(config, workdir, finished=False)
    header = _header(config, data)
    trials = _read_same(workdir, header)
    several = bool((data.training.label_counts_E > 1).any())
    trainer = _Trainer(config, workdir, data)
    with asked_to_stop("keeping the trials; press Ctrl-C again to stop at once") as stop:
        while True:
            used = sum(trial.seconds for trial in trials)
            fastest = min((trial.seconds for trial in _finished(trials)), default=0.0)
            settings = suggest(start, trials, used / seconds, config.run.seed, several)
            is_perfect = any(trial.score == 1 for trial in trials)
            if is_perfect or settings is None or used + fastest >= seconds:
                break
            begin = clock()
            ends = _Deadline(clock, begin + seconds - used, stop.is_set)
            score = trainer.score(settings, ends.is_near)
            if stop.is_set():
                raise StoppedError(
                    f"stopped as asked; the {len(trials)} trials in {workdir.trials} are kept: the "
                    "same command goes on, and with --tune_seconds=1 it trains with the best"
                )
            trials.append(Trial(settings, score, clock() - begin))
            _write(workdir, header, trials)
            log_progress(_describe(trials, seconds))
            if trainer.refusal and len(trials) > 1 and not _finished(trials):
                raise trainer.refusal
    if not _finished(trials):
        raise RunError(f"--tune_seconds={seconds:g}: no trial had time to end; give more seconds")
    return _best(trials)


class _Deadline:
    """Says whether a trial must end early.

    Args:
        clock: Returns the time in seconds.
        end: When the time is over.
        is_asked: Whether a signal asks to stop.
    """

    def __init__(self, clock: Callable[[], float], end: float, is_asked: Callable[[], bool]):
        self._clock, self._end, self._is_asked = clock, end, is_asked
        self._first: tuple[float, float] | None = None

    def is_near(self, share: float) -> bool:
        """Return whether a trial, of which a share is done, will not end in time, or must stop."""
        now = self._clock()
        if share > 0 and self._first is None:  # the first steps make the graph
            self._first = now, share
        began, done = self._first or (now, share)
        speed = (now - began) / (share - done) if share - done >= _SURE_SHARE else 0.0
        return self._is_asked() or now + speed * (1 - share) > self._end


class _Graph(NamedTuple):
    """A job with its compiled steps, which trials use one after the other.

    Attributes:
        job: The job.
        classifier: Its model and tables.
        runner: Makes its steps.
        initial: Each variable of the tables with its initial value.
    """

    job: Job
    classifier: Classifier
    runner: Runner
    initial: list[tuple[tf.Variable, tf.Tensor]]


class _Trainer:
    """Trains with the settings of trials, in memory. The last two graphs are kept.

    Attributes:
        refusal: Why the last classifier that is too large for --tune_bytes or for the memory is
            refused; None so far.
    """

    refusal: UsageError | None = None

    def __init__(self, config: ClassifyConfig, workdir: Workdir, data: classify_data.Data):
        self._config, self._workdir, self._data = config, workdir, data
        self._graphs: dict[tuple[Any, ...], _Graph] = {}

    def score(self, settings: Mapping[str, Any], is_late: Callable[[float], bool]) -> float | None:
        """Return the score on the held-out texts after training with some settings.

        Args:
            settings: The values that differ from those of the configuration.
            is_late: Called between steps with the share that is done; the trial ends early if it
                returns true.

        Returns:
            The micro-averaged F1 if some held-out texts have several labels, else the accuracy;
            None if the trial ended early, its classifier is too large, or its numbers are not
            finite.
        """
        config = with_values(self._config, settings)
        check(config)
        try:
            graph = self._graph(config)
            for variable, value in graph.initial:
                variable.assign(value)
            if not _train(graph, config, is_late):
                return None
            return _scored(graph, config)
        except UsageError as error:
            self.refusal = UsageError(str(error).replace("--bytes", "--tune_bytes"))
            return None

    def _graph(self, config: ClassifyConfig) -> _Graph:
        """Return the job of the settings, one of the last two or a new one."""
        values = flag_values.by_name(config)
        key = tuple(values[name] for name in _OF_GRAPH)
        graph = self._graphs.pop(key, None)
        if graph is None:
            if len(self._graphs) > 1:  # free the older one first
                del self._graphs[next(iter(self._graphs))]
            job, classifier = classify_job.build_job(config, self._workdir, self._data)
            graph = _Graph(job, classifier, Runner(), [])
            graph.runner.open(job, job.placed.tables, config.run.seed)
            for table in job.placed.tables.values():
                assert isinstance(table, DeviceTable)  # others are refused by ClassifyConfig.check
                graph.initial.extend((one, tf.identity(one)) for one in table.variables)
        self._graphs[key] = graph
        return graph


def _train(graph: _Graph, config: ClassifyConfig, is_late: Callable[[float], bool]) -> bool:
    """Train as the training loop does, and return whether that has ended in time."""
    job, position, epochs = graph.job, Position(), config.run.epochs
    rate = learning.make_learning_rate(config.optimizer)
    position.expect_batches(job.data.expected_batches)
    for epoch, data in graph.runner.batches(job, range(epochs), 0):
        if epoch > position.epoch:
            position.batches, position.batch = max(position.batch, 1), 0
            position.epoch = epoch
        share = position.done / epochs
        if is_late(share):
            return False
        first, now = tf.constant(position.step, tf.int64), tf.constant(rate(share), tf.float32)
        graph.runner.run_steps(data, first, now)
        position.step += job.data.steps_per_batch
        position.batch += 1
    return not is_late(1.0)


def _scored(graph: _Graph, config: ClassifyConfig) -> float | None:
    """Return the score of the tables, or None if they have numbers that are not finite.

    Raise UsageError if no file of the classifier is as small as --tune_bytes.
    """
    evaluator, tables = graph.job.evaluator, graph.job.placed.tables
    if evaluator is None or not all(table.is_finite() for table in tables.values()):
        return None
    if config.tuning.tune_bytes:
        classifier_export.quantize_tables(config, graph.classifier, config.tuning.tune_bytes)
    scores = evaluator.scores(lambda: None)
    return scores.get("heldout_f1", scores.get("heldout_accuracy"))


def _start(config: ClassifyConfig) -> dict[str, Any]:
    """Return the settings of the first trial: the given values of those that are searched."""
    values = flag_values.by_name(config)
    start = {name: values[name] for name in searched(config)}
    for name in config.tuning.names:
        if name not in start:
            raise UsageError(
                f"--tune={name}: it cannot be searched with --loss={config.model.loss}, "
                "--pretrained_vectors or --initial_model as they are given; leave it out"
            )
    if not start:
        raise UsageError(
            f"--tune_seconds={config.tuning.tune_seconds:g}: each setting that can be searched has "
            f"a value of its own; name some by --tune, such as --tune={TUNABLE[0]},{TUNABLE[1]}"
        )
    if start.get("learning_rate") == 0:  # the default of the optimizer
        start["learning_rate"] = learning.OPTIMIZERS[config.optimizer.optimizer](
            config.optimizer
        ).learning_rate
    return start


def _finished(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with a score."""
    return [trial for trial in trials if trial.score is not None]


def _best(trials: Sequence[Trial]) -> Trial:
    """Return the first trial of the best score."""
    return max(_finished(trials), key=lambda trial: trial.score or 0.0)


def _describe(trials: Sequence[Trial], seconds: float) -> str:
    """Return a line about the last of some trials."""
    last = trials[-1]
    used = sum(trial.seconds for trial in trials)
    score = "not finished" if last.score is None else f"score {last.score:.4f}"
    best = f"best {_best(trials).score:.4f}" if _finished(trials) else "none yet"
    settings = " ".join(f"{name}={value}" for name, value in last.settings.items())
    return f"trial {len(trials)} ({used:.0f} of {seconds:g} s): {score}, {best}; {settings}"


def _header(config: ClassifyConfig, data: classify_data.Data) -> dict[str, Any]:
    """Return everything that the trials of a search depend on."""
    values, fields = flag_values.by_name(config), flag_values.fields_of(type(config))
    names = [name for name in values if fields[name].metadata["fixed"] or name in TUNABLE]
    settings = {name: values[name] for name in (*names, "tune", "tune_bytes")}
    contents = {
        name: _hash_file(name, values[name]) for name in ("pretrained_vectors", "initial_model")
    }
    heldout = config.input.heldout
    sources = corpus.resolve_heldout(config.corpus, heldout) if heldout else ()
    return {
        **contents,
        "heldout": corpus.read_contents(sources) if sources else "",
        "corpus": data.fingerprint["contents"],
        "settings": settings,
    }


def _hash_file(name: str, path: str) -> str:
    """Return a hash of the bytes of the file that a setting names; "" without a path."""
    if not path:
        return ""
    message = f"--{name}: cannot read {{}}; check the file"
    with reading.read_errors(path, UsageError, message), open_regular(path) as file:
        return hash_file(file)


def _read(workdir: Workdir) -> list[Any]:
    """Return the values of the lines of the file of the trials; none if there is no file."""
    path = workdir.trials
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in checked_files.read_lines(path, _LONGEST_LINE)]
    except (ValueError, RecursionError) as error:
        raise checked_files.damaged(path, "a line of it is no JSON") from error
    shapes = [_HEADER, *[_TRIAL] * (len(lines) - 1)]
    if not all(map(checked_files.fits, lines, shapes)) or any(
        line["settings"].keys() - set(TUNABLE) for line in lines[1:]
    ):
        raise checked_files.damaged(path, "a line of it has other fields")
    return lines


def _read_same(workdir: Workdir, header: Mapping[str, Any]) -> list[Trial]:
    """Return the trials of a workdir; raise UsageError if they are of other texts or settings."""
    known, *_ = _read(workdir) or [header]
    where = f"the trials in --workdir={workdir.path}"
    for name in _FILES:
        # Earlier versions have the hash of the corpus only.
        if known.get(name, header[name]) != header[name]:
            raise UsageError(f"--{name} is not what {where} are of; give that, or a new --workdir")
    for name, value in header["settings"].items():
        if known["settings"].get(name) != value:
            was = known["settings"].get(name)
            raise UsageError(
                f"--{name}={value}: {where} were made with {was}; give that, or a new --workdir"
            )
    return read_trials(workdir)


def _write(workdir: Workdir, header: Mapping[str, Any], trials: Sequence[Trial]) -> None:
    """Write the file of the trials, as a whole or not at all."""
    lines = [json.dumps(line) for line in (header, *(trial._asdict() for trial in trials))]
    with replacing(workdir.trials) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
