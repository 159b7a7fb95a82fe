"""A language model's text side: its batches by epoch, and its perplexity on text held out.

Perplexity is e to the mean of -log P over all tokens of a text: words, `<unk>` for those without an
id of their own, and `<eos>` after each document. So it compares models of one vocabulary only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...checkpoints.workdir import Workdir
from ...config import Config
from ...errors import RunError, UsageError
from ...input import sequences
from ...input.pipeline import ALL, EpochRows, Share
from ...input.tokens import decode
from ...losses import inference
from ...models.language_model import LanguageModel
from ...tables.base import Table
from ...tables.row_reads import distinct
from ...text import corpus
from ...text.reading import Progress
from ...text.vocabulary import EOS, UNK, Vocabulary
from ...types import Batches, Rows
from ..words.words_data import Text, cache_blocks, make_batches_from_rows

# Text is scored in fewer and longer streams than it is trained on, since the first tokens of each
# are predicted from little: 16 of a block, which is 1,000 tokens or more for a share of 5 %.
_STREAMS = 16


class Score(NamedTuple):
    """How well a text was predicted.

    loss: nats a token, the mean of -log P. tokens: their number. words: of those, words with an id;
    the others are `<unk>` and `<eos>`.
    """

    loss: float
    tokens: int
    words: int


def make_batches(text: Text, config: Config, workdir: Workdir) -> Batches:
    """The batches of a run, (S, B, T + 1) int32 (see `input.sequences`).

    Iterating raises RunError when the corpus cannot be read.
    """
    progress = Progress.of(text.sources)

    def rows(share: Share) -> EpochRows:
        blocks = _blocks(text.sources, text.vocabulary, config, progress, share)
        kept = cache_blocks(blocks, text, config, workdir, progress, share)
        end = text.vocabulary.tokens.index(EOS)
        return sequences.make_epoch_rows(
            kept, sequences.heldout_share(config.input), end, config.input
        )

    return make_batches_from_rows(rows, progress, 1, config.input)


def count_trained_tokens(text: Text, config: Config) -> int:
    """About how many tokens of a text are trained on."""
    return round(text.words * (1 - sequences.heldout_share(config.input)))


def make_heldout_pass(text: Text, config: Config) -> Callable[[], Iterator[tf.Tensor]] | None:
    """A pass over the text that is held out, in batches (B, T + 1) int32; None if there is none.

    UsageError if that text has nothing to score. Iterating raises RunError where it cannot be read.
    """
    settings = config.input
    if settings.heldout:
        found = functools.partial(read_files, settings.heldout, text.vocabulary, config)
        if not any(_words(tokens_BL, text.vocabulary) for tokens_BL in found()):
            raise UsageError(explain_no_known_words(settings.heldout))
        return found
    if not settings.heldout_share:
        return None
    found = functools.partial(
        _passed, text.sources, text.vocabulary, config, settings.heldout_share
    )
    if next(found(), None) is None:
        raise UsageError(
            f"--heldout_share={settings.heldout_share} leaves no token of any block of the text; "
            "give a greater share, more text, or --heldout=FILE"
        )
    return found


def read_files(files: str, vocabulary: Vocabulary, config: Config) -> Iterator[tf.Tensor]:
    """As a pass of `heldout`, over all text of some files, named as by --corpus."""
    named = dataclasses.replace(config.corpus, corpus=files)
    return _passed(corpus.resolve(named, flag="heldout"), vocabulary, config, 1.0)


def explain_no_known_words(files: str) -> str:
    """What is wrong with files that have no word of the vocabulary."""
    return f"--heldout={files}: no word of it is in the vocabulary; give text like that of --corpus"


def make_scorer(
    model: LanguageModel, tables: dict[str, Table], vocabulary: Vocabulary, device: str
) -> Callable[[Iterator[tf.Tensor]], Score]:
    """A function from a pass over a text to its score; the model's loss must be `Normalised`.

    It sums in float64, and the state of the run's own streams stays as it is.
    """

    @tf.function(autograph=False)
    def scored(tokens_BL: tf.Tensor, state_BS: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def gather(name: str, ids_U: tf.Tensor) -> tf.Tensor:
            return tables[name].gather(ids_U)

        rows = {}
        for name, ids in model.input_lookups(tokens_BL).items():
            ids_U, positions_N = distinct(ids)
            rows[name] = Rows(gather(name, ids_U), positions_N)
        predictions, state_BS = model.predictions(tokens_BL, rows, state_BS)
        hidden_GND, targets_GM, weights_GNM = predictions
        log_p_N = inference.log_probability(
            model.output, hidden_GND[:, 0], targets_GM[:, 0], gather
        )
        losses_N = -log_p_N * weights_GNM[:, 0, 0]
        return tf.reduce_sum(tf.cast(losses_N, tf.float64)), state_BS

    def score(passed: Iterator[tf.Tensor]) -> Score:
        loss, tokens, known, state_BS = 0.0, 0, 0, None
        for tokens_BL in passed:
            with tf.device(device):
                if state_BS is None:
                    state_BS = tf.zeros((len(tokens_BL), model.cell.states * model.hidden))
                more, state_BS = scored(tokens_BL, state_BS)
            loss += float(more)
            tokens += int(decode(tokens_BL).real[:, 1:].numpy().sum())
            known += _words(tokens_BL, vocabulary)
        return Score(loss / max(tokens, 1), tokens, known)

    return score


def loss_metrics(loss: float) -> dict[str, float]:
    """The perplexity of a loss in nats a token; at most e^700, as a float ends there."""
    return {"perplexity": math.exp(min(loss, 700.0))}


def heldout_metrics(found: Score) -> dict[str, float]:
    """A score of the text held out, as a run reports it. RunError if it is not finite."""
    if not math.isfinite(found.loss):
        raise RunError("the loss on the text held out is not finite; lower --learning_rate")
    return {
        "heldout_loss": found.loss,
        "heldout_perplexity": loss_metrics(found.loss)["perplexity"],
        "heldout_tokens": found.tokens,
    }


def _passed(
    sources: tuple[str, ...], vocabulary: Vocabulary, config: Config, share: float
) -> Iterator[tf.Tensor]:
    """The batches, (B, T + 1), of such a share at the end of every block."""
    progress = Progress.of(sources)
    blocks = _blocks(sources, vocabulary, config, progress)
    streams = min(_STREAMS, config.input.batch_tokens)
    length = config.input.batch_tokens // streams
    settings = dataclasses.replace(
        config.input,
        steps_per_call=1,
        row_tokens=length,
        batch_tokens=streams * length,
        micro_batches=1,
    )
    rows = sequences.make_heldout_rows(blocks, share, vocabulary.tokens.index(EOS), settings)
    for _, tokens_SBL in make_batches_from_rows(lambda share: rows, progress, 1, settings)(
        range(1), 0
    ):
        yield tokens_SBL[0]


def _blocks(
    sources: tuple[str, ...],
    vocabulary: Vocabulary,
    config: Config,
    progress: Progress,
    share: Share = ALL,
) -> tf.data.Dataset:
    return sequences.token_blocks(sources, vocabulary, config.corpus, config.input, progress, share)


def _words(tokens_BL: tf.Tensor, vocabulary: Vocabulary) -> int:
    """How many of the tokens to predict are words with an id of their own."""
    decoded = decode(tokens_BL[:, 1:])
    marks = [vocabulary.tokens.index(token) for token in (UNK, EOS)]
    return int((decoded.real.numpy() & ~np.isin(decoded.ids.numpy(), marks)).sum())
