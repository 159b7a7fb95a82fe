"""Rows of an epoch that the workers of a tf.data service make, in the order of a local run.

TensorFlow's service sends each block from one worker, in any order, and loses the blocks of a
worker that dies. Each block has a number, so this process sorts the blocks, and makes missing
blocks itself with the same function. Every row is therefore seen once, whichever worker dies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from .. import __name__ as PACKAGE
from ..errors import RunError, UsageError
from ..settings import Config, InputConfig
from ..settings.text_config import service_address
from ..system.python_functions import from_generator
from ..text import spans
from ..text.blocks import map_in_order, without_tuning_thread
from ..text.columns import is_cuttable
from ..text.phrase_table import Phrases
from ..text.reading import Progress
from ..text.shares import ALL, Share
from ..text.vocabulary import Vocabulary
from . import pipeline, token_rows
from .block_receiver import BlockReceiver, first_line

_PROBE_SECONDS = 5.0  # for an answer that takes a millisecond
# Most blocks that wait for their turn, most requests to all workers together, and most bytes of the
# text of the waiting blocks, whose rows are hardly larger.
_MAX_WAITING, _MAX_REQUESTS, _MAX_WAITING_BYTES = 64, 16, 128 << 20

# Function (epoch, block number), int64 scalars, -> rows of the block, (R, L) int32.
BlockRows = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def check_service(data_service: str, sources: tuple[str, ...], text_column: str = "") -> None:
    """Check that the service answers and has workers, and that they can read the files in blocks.

    Args:
        data_service: The value of --data_service.
        sources: Paths of the text files.
        text_column: Value of --text_column.

    Raises:
        UsageError: The service does not answer or has no workers, or a file is not plain text.
    """
    flag = f"--data_service={data_service}"
    reason = _why_unreachable(service_address(data_service))
    if reason:
        raise UsageError(
            f"{flag}: {reason}; start it with: python -m {PACKAGE}.cluster --data_workers=2 "
            "(or pass --data_service= to read the text here)"
        )
    for path in sources:
        if not is_cuttable(path, text_column):
            raise UsageError(
                f"{flag}: {path} is compressed, in UTF-16 or has columns, and workers cannot read "
                "parts of it; write its text as UTF-8, or leave out --data_service"
            )


def make_block_rows(
    sources: tuple[str, ...],
    vocabulary: Vocabulary,
    keep_V: np.ndarray,
    config: Config,
    phrases: Phrases = (),
) -> tuple[int, BlockRows]:
    """Return the number of blocks of the corpus, and a function that makes the rows of any block.

    The whole text is read once, to find its blocks. The function has TensorFlow operations only,
    and contains the vocabulary, so workers need no file of it. They must see the text files.

    Args:
        sources: Paths of the text files.
        vocabulary: Tokens that have an id.
        keep_V: Probability that a token of each id is kept, (V,) float32.
        config: The configuration of the run.
        phrases: Phrases to join to a token.

    Raises:
        RunError: A file cannot be read, or is not UTF-8 with --invalid_utf8=error.
    """
    settings, corpus = config.input, config.corpus
    index_N4 = spans.build_index(sources, corpus, settings)
    read_text = spans.make_block_reader(sources, index_N4)
    tokenize = pipeline.make_block_tokenizer(corpus, vocabulary, phrases)
    make_rows = token_rows.make_block_rows(keep_V, config.model.window, settings, config.run.seed)
    return len(index_N4), lambda epoch, number: make_rows(
        epoch, number, tokenize(read_text(number))
    )


def make_epoch_rows(
    settings: InputConfig,
    blocks: int,
    make: BlockRows,
    progress: Progress,
    share: Share = ALL,
) -> pipeline.EpochRows:
    """Return a function from an epoch to the dataset of its rows, (R, L) int32 for each block.

    The rows and their order are equal to those of `pipeline.make_epoch_rows`. Blocks that the
    service does not send are made in this process, with a warning. Iterate inside
    `text.blocks.raise_read_errors(progress)`.

    Args:
        settings: Address of the service, block size and parallelism.
        blocks: Number of blocks of the corpus.
        make: Makes the rows of a block (see `make_block_rows`).
        progress: Gets the error of a file that cannot be read, which ends the epoch early.
        share: Blocks to return.
    """
    reader = _EpochReader(settings, blocks, make, share)

    def read(epoch: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows of each block; an error of TensorFlow ends this, as `progress.error`."""
        try:
            yield from reader.read(tf.constant(epoch, tf.int64))
        except tf.errors.OpError as error:
            progress.error = RunError(
                f"cannot read the text again: {first_line(error)}; check whether it was changed"
            )

    signature = tf.TensorSpec([None, None], tf.int32)
    return lambda epoch: from_generator(read, signature, (epoch,))


class _EpochReader:
    """Reads the rows of an epoch from the service, or makes them in this process."""

    def __init__(self, settings: InputConfig, blocks: int, make: BlockRows, share: Share):
        self._settings, self._blocks, self._make, self._share = settings, blocks, make, share
        self._make_one = tf.function(make, autograph=False)
        self._address = service_address(settings.data_service)
        self._capacity = min(_MAX_WAITING, max(4, _MAX_WAITING_BYTES // settings.block_bytes))

    def read(self, epoch: tf.Tensor) -> Iterator[np.ndarray]:
        """Yield the rows of each block in order; a block that comes too late is made here.

        If the service is lost, the rest of the epoch is made here. Both are logged.
        """
        reason = _why_unreachable(self._address)
        if reason:
            _warn_of_lost_service(self._address, reason)
            yield from self._read_locally(epoch, self._share.number)
            return
        receiver = BlockReceiver(lambda: self._distributed(epoch), self._capacity)
        missing = 0
        try:
            for number in range(self._share.number, self._blocks, self._share.total):
                rows_RL = receiver.take(number)
                if rows_RL is None and receiver.why_lost():
                    _warn_of_lost_service(self._address, receiver.why_lost())
                    yield from self._read_locally(epoch, number)
                    return
                if rows_RL is None:
                    missing += 1
                    if missing == 1:
                        logging.warning(
                            "the data service at %s has not sent block %d of %d in time; this "
                            "process makes it, and other late blocks",
                            *(self._address, number, self._blocks),
                        )
                    rows_RL = self._make_one(epoch, tf.constant(number, tf.int64)).numpy()
                yield rows_RL
        finally:
            receiver.close()
            if missing > 1:
                logging.info("made %d blocks that the data service did not send", missing)

    def _numbered_rows(self, epoch: tf.Tensor, first: int) -> tf.data.Dataset:
        """Return a dataset of (number, rows) of the blocks from `first` on.

        The process that iterates makes the rows, such as a worker of the service.
        """

        def block_rows(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return number, self._make(epoch, number)

        numbers = tf.data.Dataset.range(first, self._blocks, self._share.total)
        return map_in_order(numbers, block_rows, self._settings, "rows")

    def _read_locally(self, epoch: tf.Tensor, first: int) -> Iterator[np.ndarray]:
        """Yield the rows of each block from `first` on, made in this process."""
        dataset = without_tuning_thread(self._numbered_rows(epoch, first))
        for _, rows_RL in dataset.as_numpy_iterator():
            yield rows_RL

    def _distributed(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """Return the dataset of (number, rows) that the workers of the service make."""
        service = tf.data.experimental.service
        distribute = service.distribute(
            service.ShardingPolicy.DYNAMIC,
            f"grpc://{self._address}",
            max_outstanding_requests=min(_MAX_REQUESTS, self._capacity),
        )
        dataset = self._numbered_rows(epoch, self._share.number)
        return without_tuning_thread(dataset.apply(distribute))


def _why_unreachable(address: str) -> str:
    """Ask the service for its workers; return why it cannot do work, or "" if it can.

    It has five seconds to answer.
    """
    import grpc  # comes with TensorFlow; imported only if a service is used

    try:
        with grpc.insecure_channel(address) as channel:
            # The request has no fields, and neither has an answer without a worker.
            workers = channel.unary_unary("/tensorflow.data.DispatcherService/GetWorkers")(
                b"", timeout=_PROBE_SECONDS
            )
    except grpc.RpcError as error:
        unknown = error.code() == grpc.StatusCode.UNIMPLEMENTED
        return "another program answers there" if unknown else "nobody answers there"
    return "" if workers else "it has no workers"


def _warn_of_lost_service(address: str, reason: str) -> None:
    """Log that the service is gone, and that this process reads the rest of the epoch."""
    logging.warning(
        "the data service at %s is gone (%s); this process reads the rest of the epoch; start the "
        f"service again with: python -m {PACKAGE}.cluster --data_workers=2 --port=%s",
        address,
        reason,
        address.rpartition(":")[2],
    )
