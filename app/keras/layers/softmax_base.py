"""The base class of the output layers: a loss of `lexrow.losses` as a Keras layer."""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...losses import inference
from ...losses.base import NormalizedLoss
from ...system.xla import under_xla
from ...tables.base import TableSpec
from ...tables.device import PreparedValues, initial_values
from ...tables.id_checks import check_ids
from ...types import HOST
from ..backend import (
    check_xla,
    in_replica,
    lacks_y,
    owners_in_call,
    require_tensorflow,
)
from ..saving import RowsByPart
from ..tables.table_kinds import (
    check_place,
    make_tables,
    place_config,
    table_is_compiled,
    with_new_file,
)
from ..tables.table_memory import HOST as HOST_MEMORY
from ..tables.table_memory import place_of, require_room
from ..tables.table_variable import TableVariable, is_recording
from . import softmax_gradients
from .embedding import RowEmbedding
from .tied_rows import TiedRows

PERPLEXITY, ACCURACY, SAMPLED_LOSS = "perplexity", "accuracy", "sampled_loss"
_OWN_LOSS = "output_as_loss"  # the name by which Keras finds it
_LOSS_REMEDY = "use compile(loss=lexrow.keras.output_as_loss)"
_FIT_REMEDY = "as in fit([x, y], y) or evaluate([x, y], y), or in batches ((x, y), y)"
_METRICS_REMEDY = f"give the layer metrics=[{PERPLEXITY!r}, {ACCURACY!r}] instead"
# The classes of Keras for functions of a user's own, and for values as they are.
_PLAIN = (keras.metrics.MeanMetricWrapper, keras.metrics.Mean, keras.metrics.Sum)
# Of each word, to make classes or a tree: measured for ten million words.
_WORK_BYTES = 64
_REMEDY = (
    "give it fewer words or fewer hidden units, dtype='bfloat16', or table='host' or 'file', or "
    "use AdaptiveSoftmax"
)
_WORDS, _BIAS = "output", "bias"  # the table with a row for each word, and its biases if it is tied


class TargetMean(keras.metrics.Mean):
    """The mean over all targets; NaN if nothing was measured, as where Keras trains."""

    def result(self) -> tf.Tensor:
        """Return the mean so far."""
        return tf.math.divide(self.total, tf.cast(self.count, self.total.dtype))


class Perplexity(TargetMean):
    """The exponential of the mean of -log P over all targets."""

    def result(self) -> tf.Tensor:
        """Return the perplexity so far."""
        return tf.exp(super().result())


class OutputLayer(RowsByPart, keras.layers.Layer):
    """Predicts one of V words from a hidden vector; see `keras.layers.softmax_layers` for its use.

    A subclass defines `make_loss`, and names the arguments that it adds in `_own_arguments`: they
    are attributes of the layer.

    Args:
        vocabulary_size: The number of words V.
        counts: The occurrences of each word, integers (V,) in the order of your ids; np.ones(V)
            for words that are equally frequent. By default ids are taken to be by descending
            frequency under Zipf's law: id i in proportion to 1 / (i + 1).
        use_bias: Whether each row has a bias, stored as one more column of its table.
        metrics: What the layer measures of all targets that are not masked, without sample weights,
            for the logs of `fit` and `evaluate`: "perplexity", which is NaN where the loss is an
            estimate, and "accuracy", the share of targets that are the most likely word, which
            is NaN in training, as it reads the rows of all likely words. XLA does not compile a
            layer with "accuracy", because it searches in blocks of sizes that it computes.
        table: Where the rows and their optimizer state are: "device", "host", "file" or "sharded",
            as for `RowEmbedding`.
        table_file: With table="file", the name of a file for all tables of the layer, as for
            `RowEmbedding`.
        tied_to: A `RowEmbedding` whose rows are those of the words, also by its name if it is
            before this layer in the model. Its output_dim must be the size of the hidden vectors. A
            step reads and changes only the rows of its batch. Biases, and the rows of classes,
            belong to this layer.

    Raises:
        ValueError: An argument is out of range or of the wrong shape.
    """

    _own_arguments: tuple[str, ...] = ()
    _measures: dict[str, type[TargetMean]] = {PERPLEXITY: Perplexity, ACCURACY: TargetMean}
    _row_each = True  # whether a table has a row of all columns for each word, or each but one
    looks_up_rows = False  # whether the rows of a step are looked up, not read block by block
    _can_be_tied = True  # whether the table `_WORDS` has these rows, one for each word

    def __init__(
        self,
        vocabulary_size: int,
        counts: Any = None,
        use_bias: bool = True,
        *,
        metrics: Sequence[str] = (),
        table: str = "device",
        table_file: str | os.PathLike | None = None,
        tied_to: RowEmbedding | str | None = None,
        **options: Any,
    ):
        require_tensorflow()
        super().__init__(autocast=False, **options)  # rows are cast after they are read
        is_whole = not isinstance(vocabulary_size, bool) and int(vocabulary_size) == vocabulary_size
        if not is_whole or not 1 <= vocabulary_size < 2**31:
            raise ValueError(
                f"{self.name}: vocabulary_size={vocabulary_size!r}: give an integer from 1 to "
                "2**31 - 1"
            )
        if not isinstance(use_bias, (bool, np.bool_)):
            shown = " ".join(repr(use_bias).split())[:60]
            raise ValueError(f"{self.name}: use_bias={shown}: give True or False")
        self.vocabulary_size, self.use_bias = int(vocabulary_size), bool(use_bias)
        self.table, self.table_file = table, table_file
        check_place(self)
        if tied_to is not None and not self._can_be_tied:
            raise ValueError(
                f"{self.name}: tied_to is given, and {type(self).__name__} has no row of its own "
                "for each word; use Softmax, ClassSoftmax, SampledSoftmax or NCE"
            )
        self._tied: TiedRows | None = None
        if tied_to is not None:
            self._tied = TiedRows(self.name, self.vocabulary_size, tied_to)
        self._counts_V = None
        if counts is not None:
            self._counts_V = checked_counts(counts, self.vocabulary_size, self.name)
        self.measured = [metrics] if isinstance(metrics, str) else list(metrics)
        if unknown := [name for name in self.measured if name not in self._measures]:
            raise ValueError(
                f"{self.name}: metrics={unknown}: choose from {', '.join(self._measures)}"
            )
        # Keras finds metrics in attributes.
        self._means = [self._measures[name](name) for name in self.measured]
        self.supports_masking = True
        self.supports_jit = table_is_compiled(self) and ACCURACY not in self.measured

    @property
    def is_tied_to_cache(self) -> bool:
        """Whether its rows are those of an embedding with a cache on the device."""
        return self._tied is not None and self._tied.has_cache()

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the loss of the layer.

        Args:
            counts_V: The count of each word, in descending order.
            columns: The number of columns of the hidden vectors, the bias included.
        """
        raise NotImplementedError

    def build(self, hidden_shape: Any, targets_shape: Any = None) -> None:
        """Create the loss and its tables; words are ranked by their counts.

        Args:
            hidden_shape: The shape of the hidden vectors; the last dimension must be known.

        Raises:
            ValueError: The last dimension is unknown, or the tables need more memory than is free.
                No table is made then.
        """
        if hidden_shape[-1] is None:
            raise ValueError(f"{self.name}: hidden has an unknown last dimension; give it a size")
        self.input_spec = keras.layers.InputSpec(axes={-1: hidden_shape[-1]})
        columns = hidden_shape[-1] + self.use_bias
        row_numbers = columns if self._row_each and self._tied is None else 0
        self._require_room(self.vocabulary_size * row_numbers, self.vocabulary_size * _WORK_BYTES)
        counts_V, order_V = self._ranked_counts()
        # One trace for each k. TensorFlow would save a function in an attribute with the layer.
        spec = tf.TensorSpec([None, columns], self.compute_dtype)
        top_ranks = tf.function(self._top_ranks, autograph=False)
        self._traced = functools.cache(lambda k: top_ranks.get_concrete_function(k, spec))
        self._made: list[tf.Variable] = []  # TensorFlow exports and saves variables in attributes
        with tf.init_scope(), tf.variable_creator_scope(self._keep):
            self._rank_V = self._ids_V = None
            if order_V is not None:
                rank_V = np.empty_like(order_V)
                rank_V[order_V] = np.arange(len(order_V), dtype=order_V.dtype)
                self._rank_V = PreparedValues(rank_V)
            self._output = self.make_loss(counts_V, columns)
            if order_V is not None:  # at the end, where checkpoints of earlier versions have none
                self._ids_V = PreparedValues(order_V)
        specs = self._specs(self._output)
        self._require_room(sum(s.rows * s.columns for s in specs.values()))
        if self.table == "device":
            made = {name: self._add_table(name, spec) for name, spec in specs.items()}
        else:
            with tf.init_scope():
                made = {
                    name: TableVariable(table, name, self.variable_dtype)
                    for name, table in make_tables(self, specs).items()
                }
        self._tables = {}
        for name, table in made.items():
            self._tables[name] = table
            table.is_table = True  # read by the optimizers of lexrow.keras
            # tf.train.Checkpoint saves variables in attributes, but not those in a dictionary.
            setattr(self, f"_table_{name}", table)
            table.trainable = self.trainable  # Keras tracks it as what it was made: trainable
        if self._tied is not None:
            self._tied.build(hidden_shape[-1])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the layer as Keras does; first find the embedding that it is tied to.

        Raises:
            ValueError: There are no targets, or the embedding is not before this layer in a
                functional model, so that it would not be trained and saved with it, or another
                layer there has its name.
        """
        if kwargs.get("targets", args[1] if len(args) > 1 else None) is None:
            raise ValueError(
                f"{self.name}: the targets are missing; call it with hidden vectors and targets, "
                f"where the targets are an input of the model, {_FIT_REMEDY}"
            )
        if self._tied is not None:
            self._tied.find(args[0] if args else kwargs.get("hidden"))
        return super().__call__(*args, **kwargs)

    def call(
        self, hidden: Any, targets: Any, hidden_mask: Any = None, training: bool | None = None
    ) -> tf.Tensor:
        """Return -log P of each target; in training, sampled losses return their estimate.

        Args:
            hidden: Hidden vectors (..., D).
            targets: Integer ids (...).
            hidden_mask: Bool (...), the positions to compute. Keras passes its mask by itself.
            training: Whether the result is trained; matters only for sampled losses.

        Returns:
            Float32 of the shape of the targets, 0 where the mask is False. Where XLA compiles the
            call, NaN where a target that is not masked is out of range.

        Raises:
            ValueError: The targets are no integers, or the shapes do not match.
            tf.errors.InvalidArgumentError: A target that is not masked is out of range.
        """
        measured = functools.partial(self._measured, training=training)
        return self._compute_each(measured, hidden, targets, hidden_mask)

    def _compute_each(
        self, compute: Callable, hidden: Any, targets: Any, hidden_mask: Any = None
    ) -> tf.Tensor:
        """Return a number for each target, 0 where the mask is False; see `call`.

        Args:
            compute: Takes hidden vectors (N, columns), the ranks of their targets (N,) and, under
                XLA, which of them are real targets, bool (N,). Returns numbers (N,).
        """
        hidden, targets = tf.convert_to_tensor(hidden), tf.convert_to_tensor(targets)
        self._check(hidden.shape, targets.shape, targets.dtype)
        # This fails if the number of targets is wrong.
        targets = tf.reshape(targets, tf.shape(hidden)[:-1])
        if under_xla():
            return self._compute_all(compute, hidden, targets, hidden_mask)
        if hidden_mask is None:
            return tf.reshape(compute(*self._flat(hidden, targets)), tf.shape(targets))
        with tf.device(HOST):  # the number of chosen targets is the shape of all later tensors
            where = tf.cast(tf.where(hidden_mask), tf.int32)
            chosen = tf.gather_nd(targets, where)
        losses_N = compute(*self._flat(tf.gather_nd(hidden, where), chosen))
        return tf.scatter_nd(where, losses_N, tf.shape(targets))

    def _compute_all(
        self, compute: Callable, hidden: tf.Tensor, targets: tf.Tensor, hidden_mask: Any
    ) -> tf.Tensor:
        """Return what `_compute_each` does: of all targets, since XLA must know their number.

        A target that is masked or out of range is taken to be the most frequent word, which has the
        fewest rows. Its loss is not used, so its gradients are 0, and change no row.
        """
        if hidden_mask is None:
            hidden_mask = tf.ones_like(targets, tf.bool)
        hidden_ND, ranks_N = self._flat(hidden, targets)
        is_word_N, mask_N = ranks_N >= 0, tf.reshape(hidden_mask, [-1])
        real_N = is_word_N & mask_N
        losses_N = compute(hidden_ND, tf.where(real_N, ranks_N, 0), real_N)
        losses_N = tf.where(is_word_N, losses_N, math.nan)
        return tf.reshape(tf.where(mask_N, losses_N, 0.0), tf.shape(targets))

    def compute_output_spec(
        self, hidden: Any, targets: Any, hidden_mask: Any = None, training: Any = None
    ) -> keras.KerasTensor:
        """Return the shape and dtype of the result of `call`, after checks of shape and dtype."""
        self._check(hidden.shape, targets.shape, tf.as_dtype(targets.dtype))
        return keras.KerasTensor(targets.shape, "float32")

    def log_probability(self, hidden: Any, targets: Any) -> tf.Tensor:
        """Return the exact log P of each target, float32 of the shape of the targets.

        A layer without tables creates them first. Errors are those of `call`.

        Args:
            hidden: Hidden vectors (..., D).
            targets: Integer ids (...).
        """
        self._build_for(hidden)
        return -self._compute_each(self._exact, hidden, targets)

    def distribution(self, hidden: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of all words: ids (M,) and log P (..., M) float32 for each hidden vector.

        Only for eager mode. Blocks are computed while they are iterated over, in no order of the
        ids; together they hold every id once.

        Args:
            hidden: Hidden vectors (..., D).
        """
        self._build_for(hidden)
        hidden = tf.convert_to_tensor(hidden)
        rows = softmax_gradients.gather_of(self._sources())
        for ranks_M, log_p_NM in inference.distribution(self._output, self._extended(hidden), rows):
            yield self._ids(ranks_M).numpy(), log_p_NM.reshape(*hidden.shape[:-1], len(ranks_M))

    def top_k(self, hidden: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids and log P of the k most likely words, exactly.

        In a `tf.function`, and so in a SavedModel, the results are tensors.

        Args:
            hidden: Hidden vectors (..., D).
            k: How many words; fewer are returned if the vocabulary has fewer.

        Returns:
            The ids and their log P, both (..., k), the most likely first.

        Raises:
            ValueError: k is not positive, or XLA compiles the call.
        """
        if k < 1:
            raise ValueError(f"{self.name}: k={k}: give a positive number")
        if under_xla():
            raise ValueError(
                f"{self.name}: XLA cannot compile top_k, which searches blocks of sizes that it "
                "computes; leave out jit_compile"
            )
        self._build_for(hidden)
        hidden = tf.convert_to_tensor(hidden)
        # Eager TensorFlow would take 0.1 ms for each operation of each class or subtree.
        eager = tf.executing_eagerly()
        top_ranks = self._traced(k) if eager else functools.partial(self._top_ranks, k)
        ranks_NK, log_p_NK = top_ranks(self._extended(hidden))
        shape = tf.concat([tf.shape(hidden)[:-1], tf.shape(ranks_NK)[1:]], axis=0)
        found = [tf.reshape(each, shape) for each in (self._ids(ranks_NK), log_p_NK)]
        if tf.executing_eagerly():
            return found[0].numpy(), found[1].numpy()
        for each in found:
            each.set_shape([*hidden.shape[:-1], min(k, self.vocabulary_size)])
        return found[0], found[1]

    def table_shapes(self, hidden_size: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of the tables by name, which need not be made.

        Of a layer that is not built, the classes or the tree are made to count their rows.
        """
        if self.built:
            return {name: tuple(table.shape) for name, table in self._tables.items()}
        loss = self.make_loss(self._ranked_counts()[0], hidden_size + self.use_bias)
        return {name: (spec.rows, spec.columns) for name, spec in self._specs(loss).items()}

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer, with counts packed as text."""
        counts_V = self._counts_V
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            **({} if counts_V is None else {"counts": packed_counts(counts_V)}),
            "use_bias": self.use_bias,
            **({"metrics": self.measured} if self.measured else {}),
            **{name: getattr(self, name) for name in self._own_arguments},
            **place_config(self),
            **({"tied_to": self._tied.name} if self._tied else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> OutputLayer:
        """Return the layer that has the given configuration; tables in a file get a new one."""
        config = with_new_file(config)
        if config.get("counts") is not None:
            counts_V = unpacked_counts(config["counts"], config["vocabulary_size"])
            config = config | {"counts": counts_V}
        return cls(**config)

    def __deepcopy__(self, memo: dict[int, Any]) -> OutputLayer:
        """Return a copy, tied to the same embedding, or to its copy where both are copied."""
        reduced: Any = self.__reduce__()
        make, arguments = reduced
        memo[id(self)] = other = make(*arguments)
        if self._tied is not None:
            other._tied.copy(self._tied, memo)
        return other

    def _measured(
        self,
        hidden_ND: tf.Tensor,
        targets_N: tf.Tensor,
        real_N: tf.Tensor | None = None,
        *,
        training: bool | None,
    ) -> tf.Tensor:
        """Return the loss of each target, float32 (N,), and measure what the layer is to.

        Args:
            real_N: Which targets are measured, bool; None for all.
        """
        if is_recording():  # a pipeline calls the model for the ids of its look-ups
            return tf.zeros_like(targets_N, tf.float32)
        if ACCURACY in self.measured and not training:
            ranks_N1, _ = self._top_ranks(1, hidden_ND)
            self._measure(ACCURACY, tf.cast(ranks_N1[:, 0] == targets_N, tf.float32))
        return self._estimate(hidden_ND, targets_N, training, real_N)

    def _estimate(
        self,
        hidden_ND: tf.Tensor,
        targets_N: tf.Tensor,
        training: bool | None,
        real_N: tf.Tensor | None,
    ) -> tf.Tensor:
        """Return the loss of each target, float32 (N,): here the exact -log P, in training, too."""
        losses_N = self._exact(hidden_ND, targets_N)
        self._measure(PERPLEXITY, losses_N, real_N)
        return losses_N

    def _exact(self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, _: Any = None) -> tf.Tensor:
        """Return -log P of each target, float32 (N,)."""
        return softmax_gradients.exact(self._output, self._sources(), hidden_ND, targets_N)

    def _measure(self, name: str, values_N: tf.Tensor, real_N: tf.Tensor | None = None) -> None:
        """Add the values of some targets to the metric of a name, if the layer has it."""
        for mean in self._means:
            if mean.name == name:
                mean.update_state(values_N, real_N)

    def _ranked_counts(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the counts in descending order, and the ids in this order if it is another."""
        if self._counts_V is None:
            # Zipf's law: in proportion to 1 / (i + 1) for id i, the smallest 1.
            words = self.vocabulary_size
            return words / np.arange(1.0, words + 1.0), None
        order_V = order_by_count(self._counts_V)
        return self._counts_V if order_V is None else self._counts_V[order_V], order_V

    def _require_room(self, numbers: int, work_bytes: int = 0) -> None:
        """Raise ValueError if memory for the tables, or to make their classes, is not free."""
        needed = {HOST_MEMORY: work_bytes}
        place = place_of(self)
        needed[place] = max(needed.get(place, 0), numbers * tf.as_dtype(self.variable_dtype).size)
        name = f"the table of its {self.vocabulary_size:,} words"
        require_room(self, needed, name, _REMEDY)

    def _specs(self, loss: NormalizedLoss) -> dict[str, TableSpec]:
        """Return the tables of the layer; those of the loss, but for rows of another layer."""
        specs = dict(loss.tables())
        if self._tied is not None:
            words = specs.pop(_WORDS)
            if self.use_bias:
                specs[_BIAS] = dataclasses.replace(words, columns=1)
        return specs

    def _add_table(self, name: str, spec: TableSpec) -> keras.Variable:
        """Create a table as a variable of Keras."""
        return self.add_weight(
            (spec.rows, spec.columns),
            lambda shape, dtype: initial_values(spec.initial, tuple(shape), tf.as_dtype(dtype)),
            name=name,
        )

    def _check(self, hidden: Any, targets: Any, dtype: tf.DType) -> None:
        """Raise ValueError if the targets are no integers, or their shape does not fit hidden.

        Also if the model compares the output with classes.
        """
        check_compiled(self)
        if not dtype.is_integer:
            raise ValueError(
                f"{self.name}: targets are {dtype.name}; pass integers, with "
                "keras.Input(..., dtype='int32')"
            )
        hidden, targets = tf.TensorShape(hidden), tf.TensorShape(targets)
        if not hidden[:-1].is_compatible_with(targets):
            raise ValueError(
                f"{self.name}: hidden is of shape {hidden} and needs targets of shape "
                f"{hidden[:-1]}, not {targets}"
            )

    def _flat(self, hidden: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the vectors (N, columns), and the ranks of the checked targets, int32 (N,).

        Under XLA, which cannot raise an error, the rank of a target out of range is -1.
        """
        targets_N = tf.reshape(targets, [-1])
        ids_N = check_ids(targets_N, self.vocabulary_size, self.name)
        with tf.device(HOST):
            ids_N = tf.cast(ids_N, tf.int32)
        if under_xla():
            wide_N = tf.cast(targets_N, tf.int64)
            is_word_N = (wide_N >= 0) & (wide_N < self.vocabulary_size)
            ids_N = tf.where(is_word_N, ids_N, 0)
        if self._rank_V is not None:
            ids_N = softmax_gradients.look_up(in_replica(self._rank_V.read()), ids_N)
        return self._extended(hidden), tf.where(is_word_N, ids_N, -1) if under_xla() else ids_N

    def _extended(self, hidden: tf.Tensor) -> tf.Tensor:
        """Return the vectors (N, columns) in the compute dtype, with a column of ones for bias."""
        hidden_ND = tf.cast(tf.reshape(hidden, (-1, hidden.shape[-1])), self.compute_dtype)
        if not self.use_bias:
            return hidden_ND
        return tf.concat([hidden_ND, tf.ones_like(hidden_ND[:, :1])], axis=1)

    def _build_for(self, hidden: Any) -> None:
        """Create the tables for the shape of `hidden`, unless they exist."""
        if not self.built:
            self.build(tuple(hidden.shape))

    def _sources(self) -> softmax_gradients.Sources:
        """Return where the rows of each table of the loss are; see `softmax_gradients.Source`.

        Raises:
            ValueError: XLA compiles the code, and cannot read some of the tables.
        """
        tied = [] if self._tied is None else [self._tied.rows()]
        check_xla(self, [*self._tables.values(), *tied], on_device=self.table == "device")
        sources = {name: softmax_gradients.Source([_rows(v)]) for name, v in self._tables.items()}
        if not tied:
            return sources
        biases = sources.pop(_BIAS).variables if self.use_bias else []
        variables = [*map(_rows, tied), *biases]
        ids_V = None if self._ids_V is None else in_replica(self._ids_V.read())
        return {_WORDS: softmax_gradients.Source(variables, ids_V), **sources}

    def _top_ranks(self, k: int, hidden_ND: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the ranks and log P of k words for vectors (N, columns), both (N, k)."""
        rows = softmax_gradients.gather_of(self._sources())
        return inference.top_k(self._output, hidden_ND, min(k, self.vocabulary_size), rows)

    def _ids(self, ranks: Any) -> tf.Tensor:
        """Return the user's ids of words given by rank of frequency."""
        if self._ids_V is None:
            return tf.convert_to_tensor(ranks)
        return softmax_gradients.look_up(in_replica(self._ids_V.read()), ranks)

    def _keep(self, make: Any, **options: Any) -> tf.Variable:
        """Create a variable, and hold it in an attribute; for `tf.variable_creator_scope`."""
        self._made.append(make(**options))
        return self._made[-1]


def _rows(table: keras.Variable) -> tf.Variable | tf.Tensor | TableVariable:
    """Return the rows of a table: a variable of this replica, or a tensor in a stateless call."""
    return table if isinstance(table, TableVariable) else in_replica(table.value)


def checked_counts(counts: Any, words: int, layer: str) -> np.ndarray:
    """Return the counts as int64 (V,); raise ValueError for a wrong shape or a wrong number."""
    given_V = np.asarray(counts)
    if given_V.shape != (words,):
        raise ValueError(
            f"{layer}: counts are of shape {given_V.shape}; give one for each of the "
            f"{words:,} words of vocabulary_size, shape ({words},)"
        )
    counts_V = given_V.astype(np.int64)
    if (counts_V != given_V).any() or (counts_V < 0).any():
        wrong = given_V[(counts_V != given_V) | (counts_V < 0)][0]
        raise ValueError(f"{layer}: counts hold {wrong}; give numbers of occurrences, 0, 1, 2, …")
    return counts_V


def order_by_count(counts_V: np.ndarray) -> np.ndarray | None:
    """Return the ids by descending count, int32 (V,), or None if they already have that order.

    Ids with the same count stay in ascending order.
    """
    if (counts_V[1:] <= counts_V[:-1]).all():
        return None
    return np.argsort(-counts_V, kind="stable").astype(np.int32)


def packed_counts(counts_V: np.ndarray) -> str:
    """Return counts as text for the configuration of a layer.

    The text is base64 of the differences, compressed by zlib. Differences of sorted counts are
    mostly 0, so the counts of ten million words of a text take about 50 kB.
    """
    steps_V = np.diff(counts_V, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps_V.tobytes())).decode("ascii")


def unpacked_counts(text: str, words: int) -> np.ndarray:
    """Return the counts in a text that `packed_counts` made, int64 (V,).

    Args:
        text: The text, which may come from anybody.
        words: The number of words V; nothing is unpacked beyond as many counts.

    Raises:
        ValueError: It is no such text, or has another number of counts.
    """
    size = 8 * words
    try:
        # A limit of 0 would be none.
        data = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except (TypeError, ValueError, OverflowError, zlib.error) as error:
        raise ValueError(f"the counts of a saved layer are damaged: {error}") from error
    if len(data) != size:
        raise ValueError(f"the counts of a saved layer are not those of its {words:,} words")
    return np.cumsum(np.frombuffer(data, "<i8"))


def check_compiled(layer: keras.layers.Layer) -> None:
    """Check that no model in the call stack compares the output of a layer with classes.

    Raises:
        ValueError: The layer is an output of a compiled model, whose loss or one of whose metrics
            is a function of Keras, or which is trained or evaluated on batches without y.
    """
    if lacks_y():
        raise ValueError(
            f"{layer.name}: the batches have no y, which the loss of Keras needs beside the "
            f"targets in the inputs; give both, {_FIT_REMEDY}"
        )
    for model in owners_in_call(keras.Model):
        names = getattr(model, "output_names", None) or []
        if not model.compiled or layer.name not in names:
            continue
        given = [("loss={}", getattr(model._compile_loss, "_user_loss", None), _LOSS_REMEDY)]
        for name in ("_user_metrics", "_user_weighted_metrics"):
            metrics = getattr(model._compile_metrics, name, None)
            given.append(("metrics=[{}]", metrics, _METRICS_REMEDY))
        for argument, value, remedy in given:
            for each in filter(_is_of_keras, _of_output(names, layer.name, value)):
                shown = repr(each) if isinstance(each, str) else getattr(each, "name", "")
                raise ValueError(
                    f"{layer.name}: {argument.format(shown or each.__name__)} compares scores of "
                    "classes with the targets, and the output of this layer is -log P of each "
                    f"target; {remedy}"
                )


def _of_output(names: list[str], name: str, given: Any) -> list[Any]:
    """Return the losses or metrics, as a user gave them, of the output of this name."""
    if isinstance(given, dict):
        given = given.get(name)
    elif isinstance(given, list | tuple) and len(names) > 1:
        given = given[names.index(name)] if len(given) == len(names) else None
    return [each for each in keras.tree.flatten(given) if each is not None]


def _is_of_keras(given: Any) -> bool:
    """Return whether a loss or metric is a function of Keras, or the name of one."""
    if isinstance(given, str):
        return given != _OWN_LOSS
    if isinstance(given, keras.losses.Loss | keras.metrics.Metric):
        inner = getattr(given, "fn", getattr(given, "_fn", None))
        given = type(given) if inner is None and type(given) not in _PLAIN else inner
    return str(getattr(given, "__module__", "")).startswith("keras.")
