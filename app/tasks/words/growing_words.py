"""Train on text without a vocabulary: words get rows as they appear (--table=dynamic)."""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import RunError, UsageError
from ...input import pipeline, token_rows
from ...input.blocks import TextFiles, raise_read_errors
from ...input.token_rows import PAD
from ...system.checked_files import COUNT, damaged
from ...tables import arrays, row_files
from ...tables.base import Layout
from ...tables.dynamic.dynamic import RowStore
from ...tables.dynamic.keys import KeyMap, read_keys
from ...text import columns, vocabulary
from ...text.reading import Progress
from ...text.tokenize import warn_about_long_tokens
from ...text.vocabulary import Vocabulary
from ...types import WordVectors

STREAM_FOLDER = "stream"  # folder of a `WordStream` in a checkpoint
PINNED_STEPS = 1  # steps for which the key map keeps a row after its word was seen
_STATE, _KEYS, _WAITING = "stream.json", "keys", "waiting"
_SAMPLES = 8  # files whose first block is read to estimate the size of the text


class WordStream:
    """The batches of a text whose vocabulary grows, with a position that checkpoints keep.

    Block after block, words are counted, words that the key map admits get rows, and tokens become
    rows of text. Tokens of words without a row are dropped. Frequent words are subsampled (see
    `token_rows.keep_probability`) by the counts of the text so far.

    A step of the key map is as many blocks as fill a batch. Rows of text that wait for their batch
    are therefore of this step or of the previous one. With a map of `PINNED_STEPS` steps none of
    their words is evicted.

    Args:
        window: The most tokens on each side of a word.
        keys: Key map of strings.
        stores: Row stores of the map, which initialize the rows of admitted words.
        reweigh: Called after each block with the sightings of all rows that were ever used.
        words: File to which `commit` writes the words, as a vocab.tsv.
    """

    def __init__(
        self,
        files: TextFiles,
        window: int,
        seed: int,
        keys: KeyMap,
        stores: Sequence[RowStore],
        reweigh: Callable[[np.ndarray], None],
        words: Path,
    ):
        self._files, self._settings = files, files.settings
        self._keys, self._stores, self._reweigh, self._words = keys, stores, reweigh, words
        specs = [tf.TensorSpec([None], dtype) for dtype in (tf.int32, tf.int64, tf.float32)]
        specs += [tf.TensorSpec([], tf.int64)] * 2  # the numbers of the epoch and of the block
        sample_rows = functools.partial(
            token_rows.sample_rows, window=window, settings=files.settings, seed=seed
        )
        self._rows_of = tf.function(sample_rows, specs, autograph=False)
        self._count = files.settings.batch_tokens // files.settings.row_tokens
        # Rows of the blocks taken so far, from the batch in training on.
        self._waiting_RL = np.zeros((0, files.settings.row_tokens + 2 * window), np.int32)
        # Current epoch; blocks taken and batches trained in it; the key map's current step.
        self._epoch = self._block = self._batch = self._step = 0

    def batches(self, epochs: range, first: int) -> Iterator[tuple[int, tf.Tensor]]:
        """Yield the batches of several epochs, each with its epoch: (S, B, L) int32 of row numbers.

        Words get rows in the map and the stores while the batches are taken. The last batch of an
        epoch is filled with `PAD`. After epoch 0 a warning is logged about tokens too long.

        Args:
            epochs: Numbers of the epochs, from the stream's own on.
            first: The number of batches made in the first epoch; it must be the stream's own.

        Raises:
            RunError: The corpus cannot be read, or no word has a row at the end of an epoch.
        """
        for epoch in epochs:
            assert (self._epoch, self._batch) == (epoch, first if epoch == epochs.start else 0)
            progress = Progress.make(self._files.paths)
            dropped = 0
            with raise_read_errors(progress):
                parse = pipeline.make_block_parser(self._files.corpus)
                blocks = pipeline.map_blocks(self._files, progress, parse, first=self._block)
                for block in blocks.prefetch(self._settings.prefetch):
                    yield from self._whole_batches()
                    self._take(block)
                    dropped += int(block.dropped)
                yield from self._whole_batches()
                if progress.error is not None:  # the waiting rows may not be the end of the text
                    return
                if len(self._waiting_RL):
                    yield epoch, self._make_batch(self._waiting_RL)
            if epoch == 0:  # later epochs drop the same tokens
                warn_about_long_tokens(dropped)
            if not len(self._keys):
                raise RunError(
                    f"no word was seen {self._keys.min_sightings} times; lower --min_count or "
                    "give more text"
                )
            self._waiting_RL = self._waiting_RL[:0]
            self._epoch, self._block, self._batch = epoch + 1, 0, 0

    def snapshot(self, folder: Path) -> None:
        """Write the map, the position in the text and the waiting rows to files of a folder.

        Args:
            folder: Where to write.

        Raises:
            OSError: A file cannot be written.
        """
        self._keys.save(folder / _KEYS)
        position = self._epoch, self._block, self._batch, self._step
        arrays.save(folder / _STATE, {"at": position}, {_WAITING: self._waiting_RL})

    def layout(self) -> Layout:
        """Return the layout `dynamic`: a checkpoint holds the stream in files of its own."""
        return {"kind": "dynamic"}

    def commit(self, folders: Sequence[Path]) -> None:
        """Write the words of the newest checkpoint as the vocab.tsv of the workdir.

        Args:
            folders: Folders of the kept snapshots, the newest first.

        Raises:
            RunError: The file cannot be written.
        """
        words, _ = _read_words(folders[0])
        vocabulary.save(words, str(self._words))

    def restore(self, folder: Path) -> None:
        """Restore the map, the position and the waiting rows, and weigh all rows anew.

        The row stores must be restored as well.

        Args:
            folder: Where the snapshot is.

        Raises:
            DamagedError: A file is damaged.
            RunError: A file cannot be read, or the map does not fit the settings.
        """
        self._keys.load(folder / _KEYS)
        state, parts = arrays.load(folder / _STATE, {"at": [COUNT] * 4}, {_WAITING: [np.int32]})
        if parts[_WAITING].shape[1:] != self._waiting_RL.shape[1:]:
            raise damaged(folder / _STATE, "its waiting rows have another shape")
        self._epoch, self._block, self._batch, self._step = state["at"]
        self._waiting_RL = parts[_WAITING]
        self._weigh(self._keys.capacity)  # resets the weights of rows used since the snapshot

    def _whole_batches(self) -> Iterator[tuple[int, tf.Tensor]]:
        """Yield the epoch's number and a batch (S, B, L) int32, while enough rows wait for one.

        When the next batch is asked for, the rows of the last one are dropped, and it counts as
        made. A checkpoint before that still has its rows.
        """
        size = self._settings.steps_per_call * self._count
        while len(self._waiting_RL) >= size:
            yield self._epoch, self._make_batch(self._waiting_RL[:size])
            self._waiting_RL = self._waiting_RL[size:]
            self._batch += 1

    def _make_batch(self, rows_RL: np.ndarray) -> tf.Tensor:
        """Return rows as a batch (S, B, L) int32, filled up with rows of `PAD`."""
        steps, length = self._settings.steps_per_call, rows_RL.shape[1]
        missing = steps * self._count - len(rows_RL)
        filled = np.pad(rows_RL, ((0, missing), (0, 0)), constant_values=PAD)
        return tf.constant(filled.reshape(steps, self._count, length))

    def _take(self, block: pipeline.TextBlock) -> None:
        """Count the words of a block, give rows to admitted ones, and append its waiting rows.

        All rows are weighed anew by their counts. If a whole batch waits, the map's step ends.
        """
        seen = self._keys.see(block.words_U.numpy(), block.counts_U.numpy(), self._step)
        hashes = self._keys.hashes(seen.new_keys)
        for table in self._stores:
            table.admit(seen.new_rows, hashes)
        self._weigh(self._keys.used)
        counts_V, has_row_U = self._keys.counts_V, seen.rows_U >= 0
        chances_U = token_rows.keep_probability(
            np.where(has_row_U, counts_V[seen.rows_U], 1), self._settings.subsample, counts_V.sum()
        )
        chances_U = np.where(has_row_U, chances_U, 0).astype(np.float32)
        rows_RL = self._rows_of(
            tf.gather(seen.rows_U.astype(np.int32), block.tokens_M),
            tf.ragged.row_splits_to_segment_ids(block.splits_D),
            tf.gather(chances_U, block.tokens_M),
            *(tf.constant(number, tf.int64) for number in (self._epoch, self._block)),
        )
        self._block += 1
        self._waiting_RL = np.concatenate([self._waiting_RL, rows_RL])
        if len(self._waiting_RL) >= self._settings.steps_per_call * self._count:
            self._step += 1

    def _weigh(self, rows: int) -> None:
        """Pass the counts of the first rows to `reweigh`; do nothing while no word has a row."""
        if len(self._keys):
            self._reweigh(self._keys.counts_V[:rows])


def estimate_size(files: TextFiles, min_sightings: int) -> tuple[int, int]:
    """Return the approximate number of words and of batches of an epoch.

    They are extrapolated from the first blocks of up to 8 files; nothing else is read.

    Args:
        min_sightings: Occurrences that a word needs to get a row.

    Raises:
        UsageError: These blocks have no word.
        RunError: A file cannot be read.
    """
    sources, split, settings = files
    sample = sources[:: -(-len(sources) // _SAMPLES)]
    progress = Progress.make(sample)
    counter: dict[bytes, int] = collections.Counter()
    parse_block = pipeline.make_block_parser(split)
    for index, path in enumerate(sample):
        texts = columns.read_text(path, split, settings.block_bytes, progress, index)
        block = parse_block(tf.constant(next(texts, b"")))
        words, counts = block.words_U.numpy().tolist(), block.counts_U.numpy().tolist()
        counter.update(dict(zip(words, counts, strict=True)))
    if not counter:
        raise UsageError(f"--corpus={split.corpus}: there is no word at its beginning")
    sizes = [os.path.getsize(path) for path in sources]
    counts = np.array(list(counter.values())) * max(sum(sizes) / sum(progress.positions), 1.0)
    keep = token_rows.keep_probability(counts, settings.subsample)
    blocks = sum(-(-size // settings.block_bytes) for size in sizes)
    trained = np.where(counts >= min_sightings, counts, 0)
    return round(counts.sum()), pipeline.estimate_batches(trained, keep, settings, blocks)


def load(checkpoint: Path) -> WordVectors:
    """Load the words of a checkpoint by descending count, with their rows of table `input`.

    Raises:
        DamagedError: A file is damaged.
        RunError: A file cannot be read.
    """
    words, rows = _read_words(checkpoint / STREAM_FOLDER)
    rows_ND = row_files.read([checkpoint / "input" / row_files.VALUES], checkpoint.parent)[rows]
    return WordVectors(words.tokens, rows_ND, words.counts)


def _read_words(folder: Path) -> tuple[Vocabulary, np.ndarray]:
    """Read the words of a snapshot by descending count, then by their bytes, and row numbers."""
    words, rows, counts = read_keys(folder / _KEYS)
    order = np.argsort(words, kind="stable")
    order = order[np.argsort(-counts[order], kind="stable")]
    tokens = [word.decode() for word in words[order]]
    return Vocabulary(tokens, counts[order], int(counts.sum())), rows[order]
