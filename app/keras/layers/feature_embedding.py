"""A layer with the tables of many features, described as in keras_rs."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ...system.xla import under_xla
from ...tables.joined import StackedTable
from ...tables.memory import totals
from ..tables.table_kinds import alike_tables, stack_tables, with_new_file
from ..tables.table_memory import memory_of, require_room
from ..tables.table_variable import current_export, is_recording
from .embedding import RowEmbedding, read_together, rows_given, to_integers
from .embedding_reduce import RowEmbeddingReduce, form_of

# The values of keras_rs that leave the choice to the layer and to the optimizer of the model.
_PLACEMENTS = ("auto", "default_device")
_OPTIMIZERS = (None, "adam")
_REMEDY = "give the largest table='file' with a table_file, fewer rows, or dtype='bfloat16'"
_OBJECTS = ("initializer", "dtype")  # fields that can be objects of Keras


@dataclasses.dataclass(eq=False)
class TableConfig:
    """Configuration of an embedding table, which several features can share.

    The first seven fields are those of `keras_rs.layers.TableConfig`. The others are the arguments
    of `RowEmbedding` with these names.

    Example:
        >>> users = lexrow.keras.TableConfig("users", 10_000, 32, combiner=None)

    Attributes:
        name: The name of the table, and of the layer that has it.
        vocabulary_size: The number of rows, V.
        embedding_dim: The number of columns, D.
        initializer: The initializer of the rows; by default that of `RowEmbedding`. The default of
            keras_rs, VarianceScaling, makes whole tables, which table="file" refuses.
        optimizer: None or "adam", the default of keras_rs: the optimizer of the model updates the
            table. Other values are refused.
        combiner: How the rows of the ids of an example become one vector: "sum", "mean" or
            "sqrtn"; None for a vector of each id.
        placement: "auto" or "default_device"; the field `table` says where the rows are.
        table: Where the rows and their optimizer state are; see `RowEmbedding`.
        table_file: The file of the rows, with table="file".
        hot_rows: The rows of a cache on the device.
        mask_zero: Whether id 0 stands for padding.
        dtype: The dtype or dtype policy of the table; None for that of the layer.
    """

    name: str
    vocabulary_size: int
    embedding_dim: int
    initializer: Any = "uniform"
    optimizer: Any = None
    combiner: str | None = "mean"
    placement: str = "auto"
    table: str = "device"
    table_file: str | None = None
    hot_rows: int | None = None
    mask_zero: bool = False
    dtype: Any = None

    def get_config(self) -> dict[str, Any]:
        """Return the fields, in a form that JSON can hold."""
        config = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        objects = {n: keras.saving.serialize_keras_object(config[n]) for n in _OBJECTS}
        return config | objects

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TableConfig:
        """Make a configuration from the result of `get_config`, with a new file if it has one."""
        config = with_new_file(config)
        objects = {n: keras.saving.deserialize_keras_object(config[n]) for n in _OBJECTS}
        return cls(**config | objects)


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """Configuration of one feature: an input whose ids are looked up in a table.

    The fields are those of `keras_rs.layers.FeatureConfig`.

    Example:
        >>> words = lexrow.keras.TableConfig("words", 10_000, 32, combiner="mean")
        >>> title = lexrow.keras.FeatureConfig("title", words, (None, 20))
        >>> query = lexrow.keras.FeatureConfig("query", words, (None, 5))

    Attributes:
        name: The name of the feature, for messages.
        table: The table. Features with the same object share it.
        input_shape: The shape of the ids: (batch,) for one id in each example, (batch, L) for
            several; None for a dimension of any size. The size of a batch is not checked, and of
            ragged or sparse ids only the rank is; they are not cut off at L.
        output_shape: Not used: the shape of the result follows from the ids and the table.
    """

    name: str
    table: TableConfig
    input_shape: tuple[int | None, ...]
    output_shape: tuple[int | None, ...] | None = None


def _read_feature(feature: Any, tables: dict[int, TableConfig]) -> FeatureConfig:
    """Return a feature configuration of this package or of keras_rs as one of this package.

    Args:
        tables: The tables of features that were read before, by the `id` of their configuration;
            a new table is added to them.
    """
    try:
        if id(feature.table) not in tables:
            tables[id(feature.table)] = _read_table(feature.table)
        shape = tuple(feature.input_shape)
        result = FeatureConfig(feature.name, tables[id(feature.table)], shape)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"{feature!r} is no FeatureConfig with a TableConfig and a shape ({error}); give those "
            "of this package or of keras_rs"
        ) from error
    if not shape:
        raise ValueError(f"feature {result.name!r}: input_shape=() lacks the batch; give (None,)")
    return result


def _read_table(table: Any) -> TableConfig:
    """Return a table configuration as one of this package; refuse what cannot be honoured."""
    given = {
        field.name: getattr(table, field.name)
        for field in dataclasses.fields(TableConfig)
        if field.default is dataclasses.MISSING or hasattr(table, field.name)
    }
    result = TableConfig(**given)
    if result.placement not in _PLACEMENTS:
        raise ValueError(
            f"table {result.name!r}: placement={result.placement!r}; give 'auto', and say where "
            "the rows are by table='device', 'host', 'file' or 'sharded'"
        )
    if not isinstance(result.optimizer, str | None) or result.optimizer not in _OPTIMIZERS:
        raise ValueError(
            f"table {result.name!r}: optimizer={result.optimizer!r}; the optimizer of the model "
            "updates the tables, so leave this out. For an optimizer of its own, compile the model "
            "with keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, "
            f"{{'.*/{result.name}/embeddings': other}}))"
        )
    return result


@keras.saving.register_keras_serializable(package="lexrow")
class FeatureEmbedding(keras.layers.Layer):
    """Embedding layer for many features, some of which share a table.

    It takes the place of `keras_rs.layers.DistributedEmbedding`, and accepts its configurations.
    Each table is a `RowEmbeddingReduce`, or a `RowEmbedding` if it has no combiner.

    Example:
        >>> words = lexrow.keras.TableConfig("words", 100_000, 64, table="host")
        >>> users = lexrow.keras.TableConfig("users", 10_000, 32)
        >>> layer = lexrow.keras.FeatureEmbedding({
        ...     "title": lexrow.keras.FeatureConfig("title", words, (None, 20)),
        ...     "query": lexrow.keras.FeatureConfig("query", words, (None, None)),
        ...     "user": lexrow.keras.FeatureConfig("user", users, (None,)),
        ... })
        >>> vectors = layer({"title": titles, "query": queries, "user": user_ids})
        >>> vectors["title"].shape
        (None, 64)

    Args:
        feature_configs: A nested structure of `FeatureConfig`, or of `keras_rs.layers`'. Of a table
            of keras_rs, the limits of ids in a partition have no effect, as in keras_rs itself on a
            CPU or GPU.
        table_stacking: "auto": the tables on the device that have one width and dtype share a
            variable, and so do those of the host, so that one operation writes the rows of all of
            them, and reads them if XLA compiles the step. Each table still has its own weights,
            name and file entries, and is updated by any optimizer. Only what is looked up within a
            loop or `tf.vectorized_map` can have no gradient, and for the optimizers of Keras, what
            is looked up in a branch that is not taken. A table that is frozen when it is made, is
            float64, has a cache, has more than 64 MiB of random initial rows, or is of another
            kind, has a variable of its own. None: so has each table.
        **kwargs: As for `keras.layers.Layer`.

    Attributes:
        tables: The layers of the tables by name, each of them once.

    Raises:
        ValueError: There is no feature, two tables have one name, or a configuration has a value
            that cannot be honoured, such as an optimizer of a table or a placement "sparsecore".
    """

    def __init__(self, feature_configs: Any, table_stacking: str | None = "auto", **kwargs: Any):
        super().__init__(**kwargs)
        if table_stacking not in ("auto", None):
            raise ValueError(
                f"{self.name}: table_stacking={table_stacking!r}; give 'auto', or None for a "
                "variable for each table"
            )
        self.table_stacking = table_stacking
        configs: dict[int, TableConfig] = {}
        features = keras.tree.map_structure(
            lambda feature: _read_feature(feature, configs), feature_configs
        )
        # Keras would track the containers of the structure, and replace them by its own.
        object.__setattr__(self, "_features", features)
        if not configs:
            raise ValueError(f"{self.name}: feature_configs={feature_configs!r} has no feature")
        self.tables: dict[str, RowEmbedding] = {}
        for config in configs.values():
            if config.name in self.tables:
                raise ValueError(
                    f"{self.name}: two tables are named {config.name!r}; give features that share "
                    "a table the same TableConfig object, or the tables different names"
                )
            self.tables[config.name] = table = self._make_table(config)
            # tf.train.Checkpoint finds no layers in a dictionary of Keras.
            self._track_trackable(table, f"table_{config.name}")
        self.supports_masking = True

    def build(self, input_shapes: Any = None) -> None:
        """Create all tables."""
        tables = [table for table in self.tables.values() if not table.built]
        stacked = self._stack(tables) if self.table_stacking else {}
        for table in tables:
            table._stacked = stacked.get(table.name)
            table.build()
        self.built = True

    def call(self, inputs: Any, weights: Any = None) -> Any:
        """Return the vectors of all features.

        Args:
            inputs: The ids of each feature, in the structure of `feature_configs`: (B,) or (B, L),
                dense, ragged or sparse (see `RowEmbeddingReduce`).
            weights: The weights of the ids in the same structure; None for a feature without
                weights, or for all.

        Returns:
            The vectors in the same structure: (B, D), or with a further axis of D columns if the
            table has no combiner.

        Raises:
            ValueError: The structure is another one, the shape of a feature is not its
                `input_shape`, or weights are given where there is no combiner.
        """
        features, ids, own_weights = self._flat(inputs, weights)
        parts = zip(features, ids, own_weights, self._read_together(features, ids), strict=True)
        vectors = []
        for feature, own_ids, own, rows_ND in parts:
            table = self.tables[feature.table.name]
            if own is not None and feature.table.combiner is None:
                raise ValueError(
                    f"{self.name}: feature {feature.name!r} has weights, and table {table.name!r} "
                    "has no combiner; give it one, or None as the weights"
                )
            with rows_given(rows_ND):
                vectors.append(table(own_ids) if own is None else table(own_ids, own))
        return keras.tree.pack_sequence_as(self._features, vectors)

    def compute_output_spec(self, inputs: Any, weights: Any = None) -> Any:
        """Return the shapes and dtypes of the results, as symbolic tensors in their structure."""
        features, ids, _ = self._flat(inputs, weights)
        pairs = zip(features, ids, strict=True)
        specs = [self.tables[f.table.name].compute_output_spec(own_ids) for f, own_ids in pairs]
        return keras.tree.pack_sequence_as(self._features, specs)

    def compute_output_shape(self, input_shapes: Any) -> Any:
        """Return the shapes of the results, in their structure."""
        return keras.tree.map_structure_up_to(
            self._features,
            lambda feature, shape: self.tables[feature.table.name].compute_output_shape(shape),
            self._features,
            input_shapes,
        )

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return no mask: a table without a combiner gives its results a mask by itself."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer, each table once."""
        names = list(self.tables)

        def describe(feature: FeatureConfig) -> dict[str, Any]:
            """Return the fields of a feature, with the position of its table in `names`."""
            config = dataclasses.asdict(dataclasses.replace(feature, table=None))
            return config | {"table": names.index(feature.table.name)}

        configs = {f.table.name: f.table for f in keras.tree.flatten(self._features)}
        return super().get_config() | {
            "feature_configs": keras.tree.map_structure(describe, self._features),
            "tables": [configs[name].get_config() for name in names],
            "frozen": [name for name in names if not self.tables[name].trainable],
            "table_stacking": self.table_stacking,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FeatureEmbedding:
        """Make a layer from the result of `get_config`."""
        config = {"table_stacking": None} | config  # as models of an earlier version were
        tables = [TableConfig.from_config(table) for table in config.pop("tables")]
        frozen = config.pop("frozen", ())  # a model of an earlier version has none

        def read(node: Any) -> FeatureConfig | None:
            if not isinstance(node, dict) or "input_shape" not in node:
                return None  # no feature: its parts are read
            return FeatureConfig(**node | {"table": tables[node["table"]]})

        structure = keras.saving.deserialize_keras_object(config["feature_configs"])
        config["feature_configs"] = keras.tree.traverse(read, structure)
        layer = super().from_config(config)
        for name in frozen:
            layer.tables[name].trainable = False
        return layer

    def _make_table(self, config: TableConfig) -> RowEmbedding:
        """Return the layer of a table."""
        options = {
            "embeddings_initializer": config.initializer,
            "name": config.name,
            "dtype": config.dtype or self.dtype_policy,
            "trainable": self.trainable,
            **{n: getattr(config, n) for n in ("table", "table_file", "hot_rows", "mask_zero")},
        }
        shape = config.vocabulary_size, config.embedding_dim
        if config.combiner is None:
            return RowEmbedding(*shape, **options)
        return RowEmbeddingReduce(*shape, combiner=config.combiner, **options)

    def _stack(self, tables: Sequence[RowEmbedding]) -> dict[str, StackedTable]:
        """Return the tables that share a variable by name; raise ValueError if memory lacks."""
        alike = alike_tables(tables)
        needed = collections.Counter[str]()
        for table in itertools.chain(*alike):
            needed.update(totals(memory_of(table)))
        require_room(self, needed, "the tables of one width", _REMEDY)
        with tf.init_scope():
            return {name: own for group in alike for name, own in stack_tables(group).items()}

    def _read_together(
        self, features: Sequence[FeatureConfig], ids: Sequence[Any]
    ) -> list[tf.Tensor | None]:
        """Return the rows (N, D) of dense ids, those in one variable by one operation, for XLA.

        None stands for rows that the layer of the table reads itself: of other ids, of a feature
        whose variable has no other one, and wherever XLA does not compile the look-up.
        """
        rows: list[tf.Tensor | None] = [None] * len(features)
        if not under_xla() or is_recording() or current_export():
            return rows
        tables = [self.tables[feature.table.name] for feature in features]
        alike: dict[Any, list[int]] = {}
        for number, (table, own_ids) in enumerate(zip(tables, ids, strict=True)):
            if form_of(own_ids) == "dense":
                alike.setdefault(getattr(table._stacked, "whole", table.name), []).append(number)
        for numbers in alike.values():
            if len(numbers) == 1:
                continue
            read = [
                tf.reshape(to_integers(ids[n], tables[n].input_dim, tables[n].name), [-1])
                for n in numbers
            ]
            found = read_together([tables[n] for n in numbers], read)
            for number, rows_ND in zip(numbers, found, strict=True):
                rows[number] = rows_ND
        return rows

    def _flat(self, inputs: Any, weights: Any) -> tuple[list[FeatureConfig], list[Any], list[Any]]:
        """Return the features, the ids of each, and its weights or None, after checks."""
        features = keras.tree.flatten(self._features)
        for given, kind in ((inputs, "ids"), (weights, "weights")):
            if given is not None:
                self._check_structure(given, kind)
        ids = keras.tree.flatten(inputs)
        for feature, own_ids in zip(features, ids, strict=True):
            expected = feature.input_shape
            fits = len(own_ids.shape) == len(expected)
            if fits and form_of(own_ids) == "dense":  # the size of the batch may be any
                pairs = zip(own_ids.shape[1:], expected[1:], strict=True)
                fits = all(one == other or None in (one, other) for one, other in pairs)
            if not fits:
                raise ValueError(
                    f"{self.name}: the ids of feature {feature.name!r} have shape "
                    f"{tuple(own_ids.shape)}, and its input_shape is {expected}, "
                    "where the first is the batch"
                )
        own_weights = keras.tree.flatten(weights) if weights is not None else [None] * len(ids)
        return features, ids, own_weights

    def _check_structure(self, given: Any, kind: str) -> None:
        """Raise ValueError if inputs or weights have another structure than the features."""
        try:
            keras.tree.assert_same_structure(self._features, given)
        except (ValueError, TypeError) as error:
            names = keras.tree.map_structure(lambda feature: feature.name, self._features)
            remedy = "give None for a feature without weights" if kind == "weights" else "give all"
            raise ValueError(
                f"{self.name}: the {kind} do not have the structure of the features, {names}; "
                f"{remedy} ({error})"
            ) from error
