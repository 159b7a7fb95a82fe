"""The rows of an epoch, made by the workers of a tf.data service, in the order of a run without.

TensorFlow's service gives each block to one worker and comes with no order; what a dying worker
held is lost. The number of each block puts them back in order, and tells what is missing: that is
made here, by the same function. So every row is seen once, whatever dies.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from .. import __name__ as PACKAGE
from ..config import Config, InputConfig
from ..config.settings import service_address
from ..errors import RunError, UsageError
from ..text import spans
from ..text.blocks import without_autograph, without_tuning_thread
from ..text.reading import Progress
from ..text.vocabulary import Vocabulary, lookup_table
from . import pipeline, token_rows

# A block that others have overtaken for so long, or while nothing came at all, is made here: many
# times what a worker takes for a block.
PATIENCE_SECONDS = 3.0
# Silence for so long, and the service is given up until the next epoch; a worker that is started
# again is there in about 10. One that has sent nothing at all in an epoch is given up at once.
SILENCE_SECONDS = 30.0
# More for the first block: a worker gets the vocabulary and makes its table. A million tokens
# took 10 seconds or less, and 22 once, on a machine that was busy with other work.
START_SECONDS = 30.0
_PROBE_SECONDS = 5.0  # for an answer that takes a millisecond
# Blocks held until their turn, and asked for at a time of all workers together; their text has at
# most so many bytes, and their rows have hardly more.
_AHEAD, _REQUESTED, _AHEAD_BYTES = 64, 16, 128 << 20

# From an epoch and the number of a block, int64 scalars, to the rows of the block, (R, L) int32.
BlockRows = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def check_service(data_service: str, sources: tuple[str, ...]) -> None:
    """Raises UsageError where the service does not answer, or the sources cannot be shared."""
    flag = f"--data_service={data_service}"
    reason = _unreachable(service_address(data_service))
    if reason:
        raise UsageError(
            f"{flag}: {reason}; start it with: python -m {PACKAGE}.cluster --data_workers=2 "
            "(or pass --data_service= to read the text here)"
        )
    for path in sources:
        if not spans.is_cuttable(path):
            raise UsageError(
                f"{flag}: {path} is compressed, and cannot be read in blocks by several; "
                "decompress it, or leave out --data_service"
            )


def make_block_rows(
    sources: tuple[str, ...], vocabulary: Vocabulary, keep_V: np.ndarray, config: Config
) -> tuple[int, BlockRows]:
    """Return the number of blocks of the corpus, and the function that makes the rows of any.

    The function is of TensorFlow's operations alone. It holds the tokens of the vocabulary, which
    so reach the workers with it: there may be no file of them yet. The workers must see the
    sources.
    """
    read, corpus = config.input, config.corpus
    index_N4 = spans.build_index(
        sources, corpus.documents, corpus.invalid_utf8, read.block_bytes, read.readers
    )
    text = spans.make_block_reader(sources, index_N4)
    tokens = pipeline.make_block_tokenizer(corpus, lookup_table(vocabulary).lookup)
    rows_of = token_rows.make_block_rows(keep_V, config.model.window, read, config.run.seed)
    return len(index_N4), lambda epoch, number: rows_of(epoch, number, tokens(text(number)))


def make_epoch_rows(
    settings: InputConfig,
    blocks: int,
    make: BlockRows,
    progress: Progress,
    share: pipeline.Share = pipeline.ALL,
) -> pipeline.EpochRows:
    """As `pipeline.make_epoch_rows`: the same rows in the same order.

    blocks, make: see `block_rows`. share: of the blocks. Iterate inside
    `text.blocks.raise_read_errors(progress)`.
    """
    address = service_address(settings.data_service)
    ahead = min(_AHEAD, max(4, _AHEAD_BYTES // settings.block_bytes))
    make_one = tf.function(make, autograph=False)

    @without_autograph
    def numbered(epoch: tf.Tensor, first: int) -> tf.data.Dataset:
        """(number, rows) of the blocks from `first` on, made by whichever process iterates."""
        return tf.data.Dataset.range(first, blocks, share.of).map(
            lambda number: (number, make(epoch, number)),
            num_parallel_calls=settings.map_parallelism,
            deterministic=True,
            name="rows",
        )

    def here(epoch: tf.Tensor, first: int) -> Iterator[np.ndarray]:
        for _, found in without_tuning_thread(numbered(epoch, first)).as_numpy_iterator():
            yield found

    def of_epoch(epoch: tf.Tensor) -> Iterator[np.ndarray]:
        reason = _unreachable(address)
        if reason:
            _say_gone(address, reason)
            yield from here(epoch, share.number)
            return
        arrivals = BlockReceiver(
            lambda: _distributed(numbered(epoch, share.number), address, ahead), ahead
        )
        made = 0
        try:
            for number in range(share.number, blocks, share.of):
                found = arrivals.take(number)
                if found is None and arrivals.gone():
                    _say_gone(address, arrivals.gone())
                    yield from here(epoch, number)
                    return
                if found is None:
                    made += 1
                    if made == 1:
                        logging.warning(
                            "the data service at %s has not sent block %d of %d in time; making "
                            "it, and others like it, here",
                            address,
                            number,
                            blocks,
                        )
                    found = make_one(epoch, tf.constant(number, tf.int64)).numpy()
                yield found
        finally:
            arrivals.close()
            if made > 1:
                logging.info("%d blocks that the data service did not send were made here", made)

    def read(epoch: np.ndarray) -> Iterator[np.ndarray]:
        try:
            yield from of_epoch(tf.constant(epoch, tf.int64))
        except tf.errors.OpError as error:
            progress.error = RunError(f"cannot read the text again: {_line(error)}; is it changed?")

    signature = tf.TensorSpec([None, None], tf.int32)
    return lambda epoch: tf.data.Dataset.from_generator(
        read, args=(epoch,), output_signature=signature
    )


class BlockReceiver:
    """What a dataset of (number, rows) gives, in any order, taken by number.

    The dataset is made and iterated in a thread of its own, since TensorFlow's client waits for
    ever where nobody is left to answer. Nothing ends such a wait but the end of the process, which
    it does not delay. ahead: how many are held until their turn.
    """

    def __init__(self, dataset: Callable[[], tf.data.Dataset], ahead: int):
        self._dataset, self._ahead = dataset, ahead
        self._changed = threading.Condition()
        self._held: dict[int, tuple[float, np.ndarray]] = {}  # the oldest first
        self._turn = 0
        self._last = time.monotonic() + START_SECONDS  # when anything came
        self._came = self._ended = self._closed = False
        self._error = ""
        threading.Thread(target=self._pull, name="data service", daemon=True).start()

    def take(self, number: int) -> np.ndarray | None:
        """The rows of a block, or None when they do not come in time. Numbers only grow."""
        with self._changed:
            self._turn = number
            for passed in [other for other in self._held if other < number]:
                del self._held[passed]
            self._changed.notify_all()
            while number not in self._held:
                left = self._since() + PATIENCE_SECONDS - time.monotonic()
                if left <= 0 or self._ended or len(self._held) >= self._ahead:
                    return None
                self._changed.wait(left)
            return self._held.pop(number)[1]

    def gone(self) -> str:
        """Why nothing more is to be expected; empty while something is."""
        with self._changed:
            limit = SILENCE_SECONDS if self._came else PATIENCE_SECONDS
            silent = not (self._ended or self._held) and time.monotonic() - self._last >= limit
            return self._error or ("it sends nothing" if silent else "")

    def close(self) -> None:
        """Lets the thread end, as soon as TensorFlow lets it."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify_all()

    def _since(self) -> float:
        """Since when the block in turn is overdue: a later one has come, or nothing comes."""
        return next((came for came, _ in self._held.values()), self._last)

    def _pull(self) -> None:
        try:
            for number, found in self._dataset():
                self._last, self._came = time.monotonic(), True
                if not self._put(int(number), found.numpy()):
                    return
        except tf.errors.OpError as error:
            self._error = _line(error)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, number: int, found: np.ndarray) -> bool:
        """Waits until there is room, or it is the block's turn; False when nobody wants more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or len(self._held) < self._ahead or number <= self._turn
            )
            self._last = time.monotonic()
            if number >= self._turn and not self._closed:  # else it was made here meanwhile
                self._held[number] = (self._last, found)
                self._changed.notify_all()
            return not self._closed


def _distributed(dataset: tf.data.Dataset, address: str, ahead: int) -> tf.data.Dataset:
    service = tf.data.experimental.service
    found = dataset.apply(
        service.distribute(
            service.ShardingPolicy.DYNAMIC,
            f"grpc://{address}",
            max_outstanding_requests=min(_REQUESTED, ahead),
        )
    )
    return without_tuning_thread(found)


def _unreachable(address: str) -> str:
    """Why no work can be given to the service; empty if it can."""
    import grpc  # TensorFlow needs it as well; only where a service is asked for

    try:
        with grpc.insecure_channel(address) as channel:
            # The request has no fields, and neither has an answer without a worker.
            workers = channel.unary_unary("/tensorflow.data.DispatcherService/GetWorkers")(
                b"", timeout=_PROBE_SECONDS
            )
    except grpc.RpcError as error:
        unknown = error.code() == grpc.StatusCode.UNIMPLEMENTED
        return "what answers there is no data service" if unknown else "nobody answers there"
    return "" if workers else "it has no workers"


def _say_gone(address: str, reason: str) -> None:
    logging.warning(
        "the data service at %s is gone (%s); reading the rest of this epoch here; start it again "
        f"with: python -m {PACKAGE}.cluster --data_workers=2 --port=%s",
        address,
        reason,
        address.rpartition(":")[2],
    )


def _line(error: tf.errors.OpError) -> str:
    lines = re.sub(r"\{\{.*?\}\}", "", error.message).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
