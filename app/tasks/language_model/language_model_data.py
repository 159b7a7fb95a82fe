"""Make the batches of a language model, and score it on held-out text.

Perplexity is e to the mean of -log P over all tokens of a text. The tokens are words, `<unk>` for
words without an id of their own, and `<eos>` after each document. Only models with the same
vocabulary can be compared.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import RunError, UsageError
from ...input import sequences
from ...input.blocks import Share, TextFiles
from ...input.pipeline import EpochRows, map_blocks
from ...input.token_rows import decode
from ...losses import inference
from ...losses.base import gather_from
from ...models.language_model import LanguageModel
from ...settings import CorpusConfig, InputConfig
from ...system.console import show_progress
from ...tables.base import Table
from ...tables.row_reads import gather_unique
from ...text import corpus
from ...text.reading import Progress
from ...text.vocabulary import EOS, UNK, Vocabulary
from ...types import Batches
from ..text_tasks import cache_blocks, make_batches_from_rows
from ..words.words_data import Text

# Scoring uses fewer and longer streams than training, as the first tokens of a stream have little
# context: 16 per block, each of 1,000 tokens or more if 5 % of a block is held out.
_STREAMS = 16


class Score(NamedTuple):
    """The loss of a model on a text, and the number of its tokens.

    Attributes:
        loss: Mean of -log P, in nats per token.
        tokens: Number of tokens.
        words: Number of tokens that are neither `<unk>` nor `<eos>`.
    """

    loss: float
    tokens: int
    words: int


def make_batches(text: Text, epochs: int) -> Batches:
    """Return the function that yields the batches of a run, (S, B, T + 1) int32.

    See `types.Batches` and `input.sequences`. Nothing is read before it yields the first batch.

    Args:
        epochs: In how many epochs the text is read; 0 for --plan_only, which keeps no tokens.

    Raises:
        RunError: While iterating, if the corpus cannot be read.
    """
    settings, progress = text.files.settings, Progress.make(text.files.paths)
    share_out, end = sequences.heldout_share(settings), text.vocabulary.tokens.index(EOS)

    def rows(share: Share) -> EpochRows:
        """Return a function from an epoch to the rows of a share of the text, (R, T + 1) int32."""
        tokenize = sequences.make_block_tokenizer(text.files.corpus, text.vocabulary)
        blocks = map_blocks(text.files, progress, tokenize, share)
        blocks = cache_blocks(blocks, text, epochs)
        return sequences.make_epoch_rows(blocks, share_out, end, settings)

    return make_batches_from_rows(rows, progress, 1, settings)


def make_heldout_pass(text: Text) -> Callable[[], Iterator[tf.Tensor]] | None:
    """Return a function that iterates over the held-out text, or None if there is none.

    A text with nothing to score is refused here. So a --heldout text is read up to its first word
    of the vocabulary, and whole if it has none; for --heldout_share the first batch is read.

    Returns:
        Function without arguments. It yields batches (B, T + 1) int32, and raises the errors below
        if a file cannot be found or read.

    Raises:
        UsageError: --heldout names no readable file or has no word of the vocabulary, or the share
            of --heldout_share has no token.
        RunError: A file cannot be read.
    """
    files, vocabulary = text.files, text.vocabulary
    settings = files.settings
    if settings.heldout:
        make_pass = functools.partial(
            read_files, settings.heldout, vocabulary, files.corpus, settings
        )
        if not any(_count_words(tokens_BL, vocabulary) for tokens_BL in make_pass()):
            raise UsageError(explain_no_known_words(settings.heldout))
        return make_pass
    if not settings.heldout_share:
        return None
    make_pass = functools.partial(_read_heldout, files, vocabulary, settings.heldout_share)
    if next(make_pass(), None) is None:
        raise UsageError(
            f"--heldout_share={settings.heldout_share} leaves no token of any block of the text; "
            "give a greater share, more text, or --heldout=FILE"
        )
    return make_pass


def read_files(
    files: str, vocabulary: Vocabulary, split: CorpusConfig, settings: InputConfig
) -> Iterator[tf.Tensor]:
    """Return an iterator over batches (B, T + 1) int32 of all text of some files.

    The files are looked for at once, and read while iterating.

    Args:
        files: The files, named as by --corpus.

    Raises:
        UsageError: A file cannot be used.
        RunError: While iterating, if a file cannot be read.
    """
    sources = corpus.resolve_heldout(split, files)
    return _read_heldout(TextFiles(sources, split, settings), vocabulary, 1.0)


def explain_no_known_words(files: str) -> str:
    """Return the error message for files that have no word of the vocabulary.

    Args:
        files: The value of --heldout.
    """
    return f"--heldout={files}: no word of it is in the vocabulary; give text like that of --corpus"


def make_scorer(
    model: LanguageModel, tables: dict[str, Table], vocabulary: Vocabulary, device: str
) -> Callable[..., Score]:
    """Return a function that scores one pass over a text.

    It sums in float64, and does not change the state of the streams that are being trained. A text
    without tokens has loss 0.

    Args:
        model: The model; its loss is `NormalizedLoss`.
        device: Where to compute.

    Returns:
        Function from an iterator over batches (B, T + 1) to the `Score`. A second argument, if
        given, is called after each batch; see `training.job.Scores`.
    """
    gather = gather_from(tables)

    @tf.function(autograph=False)
    def score_batch(tokens_BL: tf.Tensor, state_BS: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the sum of -log P of a batch, float64, and the state after it."""
        rows = gather_unique(model.input_lookups(tokens_BL), gather)
        predictions, state_BS = model.predictions(tokens_BL, rows, state_BS)
        hidden_GND, targets_GM, weights_GNM, *_ = predictions
        log_p_N = inference.log_probability(
            model.output, hidden_GND[:, 0], targets_GM[:, 0], gather
        )
        return tf.reduce_sum(tf.cast(-log_p_N * weights_GNM[:, 0, 0], tf.float64)), state_BS

    def score(batches: Iterator[tf.Tensor], check: Callable[[], None] = lambda: None) -> Score:
        """Return the score of all batches, with a state that is zero before the first."""
        loss, tokens, known, state_BS = 0.0, 0, 0, None
        with show_progress("scoring held-out text", None, " tokens") as show:
            for tokens_BL in batches:
                with tf.device(device):
                    if state_BS is None:
                        state_BS = tf.zeros((len(tokens_BL), model.cell.states * model.hidden))
                    batch_loss, state_BS = score_batch(tokens_BL, state_BS)
                loss += float(batch_loss)
                tokens += int(decode(tokens_BL).real[:, 1:].numpy().sum())
                known += _count_words(tokens_BL, vocabulary)
                show(tokens)
                check()
        return Score(loss / max(tokens, 1), tokens, known)

    return score


def loss_metrics(loss: float) -> dict[str, float]:
    """Return {"perplexity": e ** loss}, at most e ** 700, near the largest float.

    Args:
        loss: Mean of -log P, in nats per token.
    """
    return {"perplexity": math.exp(min(loss, 700.0))}


def heldout_metrics(score: Score) -> dict[str, float]:
    """Return the metrics of the held-out text by name.

    Raises:
        RunError: The loss is not finite.
    """
    if not math.isfinite(score.loss):
        raise RunError("the loss on the text held out is not finite; lower --learning_rate")
    return {
        "heldout_loss": score.loss,
        "heldout_perplexity": loss_metrics(score.loss)["perplexity"],
        "heldout_tokens": score.tokens,
    }


def _read_heldout(files: TextFiles, vocabulary: Vocabulary, share: float) -> Iterator[tf.Tensor]:
    """Yield batches (B, T + 1) int32 of the last share of the tokens of every block.

    B is at most 16 and T as long as --batch_tokens allows: longer rows than in training.
    """
    settings, progress = files.settings, Progress.make(files.paths)
    tokenize = sequences.make_block_tokenizer(files.corpus, vocabulary)
    blocks = map_blocks(files, progress, tokenize)
    streams = min(_STREAMS, settings.batch_tokens)
    length = settings.batch_tokens // streams
    settings = dataclasses.replace(settings, row_tokens=length, batch_tokens=streams * length)
    settings = dataclasses.replace(settings, steps_per_call=1, micro_batches=1)
    end = vocabulary.tokens.index(EOS)
    rows = sequences.make_epoch_rows(blocks, share, end, settings, heldout=True)
    batches = make_batches_from_rows(lambda share: rows, progress, 1, settings)
    for _, tokens_SBL in batches(range(1), 0):
        yield tokens_SBL[0]


def _count_words(tokens_BL: tf.Tensor, vocabulary: Vocabulary) -> int:
    """Return the number of known words to predict in a batch.

    The first token of each row is not predicted. Padding, `UNK` and `EOS` are not counted.
    """
    decoded = decode(tokens_BL[:, 1:])
    special_ids = [vocabulary.tokens.index(token) for token in (UNK, EOS)]
    return int((decoded.real.numpy() & ~np.isin(decoded.ids.numpy(), special_ids)).sum())
