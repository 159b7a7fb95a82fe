"""Parts that the tasks on running text share: training data, loss, empty batch and scores."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator

import tensorflow as tf

from ..checkpoints.checkpoint import newest_position
from ..checkpoints.workdir import Workdir
from ..errors import RunError, UsageError
from ..evaluation import score_report
from ..exporting import projector
from ..input import pipeline, token_cache
from ..input.blocks import Share, raise_read_errors
from ..input.pipeline import EpochRows
from ..input.token_rows import PAD
from ..settings import InputConfig
from ..text.reading import Progress
from ..text.vocabulary import UNK
from ..training.job import TrainingData
from ..training.metrics import write_closing_scores
from ..types import Batches
from . import trained_vectors
from .words import words_data
from .words.words_data import NO_VOCABULARY, Text


def make_data(
    text: Text,
    workdir: Workdir,
    batches: Batches,
    epoch_size: int,
    batch_unit: str,
    micro_batch: tf.TensorSpec | None = None,
) -> TrainingData:
    """Return the batches of a task on running text, with the facts that the training loop needs.

    Args:
        batches: The batches of the text.
        epoch_size: The number of words in an epoch.
        batch_unit: The unit of --batch_tokens, for the banner.
        micro_batch: The spec of a micro-batch of one step, for `TrainingData.empty`; None if every
            process makes whole batches.
    """
    steps, empty = text.files.settings.steps_per_call, None
    if micro_batch is not None:
        empty = tf.fill((steps, *micro_batch.shape), PAD)
    return TrainingData(
        batches=batches,
        expected_batches=text.batches,
        steps_per_batch=steps,
        epoch_size=epoch_size,
        batch_unit=batch_unit,
        empty=empty,
        digest=words_data.compute_digest(text),
        summary=_about(text),
        record=lambda: words_data.record(text, workdir),
    )


def micro_batch_spec(settings: InputConfig, halo: int) -> tf.TensorSpec:
    """Return the spec of a micro-batch of one step: tokens (B, L) int32.

    Args:
        halo: The number of context tokens beside the T tokens of a row, L - T.
    """
    rows, length = settings.micro_tokens // settings.row_tokens, settings.row_tokens
    return tf.TensorSpec([rows, length + halo], tf.int32)


def make_batches_from_rows(
    make_rows: Callable[[Share], EpochRows], progress: Progress, halo: int, settings: InputConfig
) -> Batches:
    """Return the function that yields batches of rows (see `types.Batches`); it reads nothing yet.

    Args:
        make_rows: Function from a share of the text to its rows in each epoch; called once a share.
        progress: The progress in the files that the rows are read from.
        halo: The number of tokens of a row beside its T tokens, L - T.
        settings: Batch size and the number of micro-batches.

    Raises:
        RunError: While iterating, if a file cannot be read.
    """
    micro = settings.micro_batches or 1
    # Cached, so that all epochs share the rows and nothing is read before the first epoch.
    share_rows = functools.cache(lambda number: make_rows(Share(number, micro)))

    def epoch_batches(
        epochs: range, first: int, mine: range | None = None
    ) -> Iterator[tuple[int, tf.Tensor]]:
        """Yield (epoch, batch) as in `types.Batches`; `mine` are its `parts`, None for all."""
        streams = [share_rows(number) for number in mine or range(micro)]
        dataset = pipeline.make_batches(streams, epochs, first, halo, settings)
        with raise_read_errors(progress):
            for epoch, tokens in dataset:
                if progress.error is not None:  # rows may be missing from this batch
                    break
                yield int(epoch), tokens

    return epoch_batches


def cache_blocks(blocks: tf.data.Dataset, text: Text, epochs: int) -> tf.data.Dataset:
    """Return the blocks of tokens, which --cache keeps in memory between epochs or not.

    Args:
        blocks: Dataset of tokens (M,) int32, a share of the text.
        epochs: In how many epochs the text is read; 0 for --plan_only.
    """
    # A plan reads no whole epoch.
    if not (epochs and token_cache.keeps(text.files.settings.cache, epochs, text.words)):
        return blocks
    return blocks.cache()


def write_and_score(workdir: Workdir, has_benchmarks: bool = True) -> str:
    """Write the trained vectors for TensorBoard's projector, and return their scores as text.

    The scores are also written to metrics.jsonl and TensorBoard. The text has neighbors of some
    words and the commands to try next, too.

    Args:
        workdir: The workdir of a finished run.
        has_benchmarks: Whether to score the vectors by benchmarks of words.

    Raises:
        RunError: The vectors cannot be read or written.
    """
    trained = trained_vectors.load(workdir.path)
    try:
        projector.write(trained, workdir.tensorboard)
    except UsageError as error:  # training is done, so this is a failure, not a refusal
        raise RunError(str(error)) from error
    path = shlex.quote(str(workdir.path))
    if not has_benchmarks:
        return score_report.closing(trained, None, path)
    scores = score_report.run(trained)
    position = newest_position(workdir.trained)
    values = {score.name: score.value for score in scores if score.value is not None}
    if position is not None and values:
        values = {"epoch": position.epoch, **values}
        write_closing_scores(workdir.metrics, workdir.tensorboard, position.step, values)
    return score_report.closing(trained, scores, path)


def _about(text: Text) -> list[tuple[str, str]]:
    """Return the lines of the banner about the corpus and the vocabulary: a title and a text."""
    size = f"{len(text.vocabulary.tokens):,} words"
    if text.vocabulary is NO_VOCABULARY:
        size = "grows with the text"
    elif text.is_counted_here:
        tokens, counts = text.vocabulary.tokens, text.vocabulary.counts
        known = counts.sum() - (counts[tokens.index(UNK)] if UNK in tokens else 0)
        if known <= text.words:  # else it was counted in another text, too
            size += f", {known / text.words:.1%} of it"
    return [
        ("corpus", f"{text.words:,} words in {len(text.files.paths)} file(s)"),
        ("vocabulary", size),
    ]
