"""Descriptions of features and of the tables that they share, as in keras_rs."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras

from ..tables.table_kinds import with_new_file

# The values of keras_rs that leave the choice to the layer and to the optimizer of the model.
_PLACEMENTS = ("auto", "default_device")
_OPTIMIZERS = (None, "adam")
_OBJECTS = ("initializer", "dtype")  # fields that can be objects of Keras
_REQUIRED = ("name", "vocabulary_size", "embedding_dim")  # fields of every table


@dataclasses.dataclass(eq=False)
class TableConfig:
    """Configuration of an embedding table, which several features can share.

    The first seven fields are those of `keras_rs.layers.TableConfig`. The others are the arguments
    of `RowEmbedding` with these names.

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
        """Make a configuration from the result of `get_config`, with a new file if it has one.

        Args:
            config: The result of `get_config`; it is not changed.
        """
        config = with_new_file(config)
        objects = {n: keras.saving.deserialize_keras_object(config[n]) for n in _OBJECTS}
        return cls(**config | objects)


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """Configuration of one feature: an input whose ids are looked up in a table.

    The fields are those of `keras_rs.layers.FeatureConfig`.

    Attributes:
        name: The name of the feature, for messages.
        table: The table. Features with the same object share it.
        input_shape: The shape of the ids: (batch,) for one id in each example, (batch, L) for
            several; None for a dimension of any size. The size of a batch is not checked, and of
            ragged or sparse ids only the rank is; they are not cut off at L.
        output_shape: The shape of the result, which is checked; by default not.
    """

    name: str
    table: TableConfig
    input_shape: tuple[int | None, ...]
    output_shape: tuple[int | None, ...] | None = None


def read_feature(feature: Any, tables: dict[int, TableConfig]) -> FeatureConfig:
    """Return a feature configuration of this package or of keras_rs as one of this package.

    Args:
        feature: The configuration.
        tables: The tables of features that were read before, by the `id` of their configuration;
            a new table is added to them.

    Raises:
        ValueError: It is no configuration, or it has a value that cannot be honoured.
    """
    try:
        name, table = feature.name, feature.table
        shape, output_shape = tuple(feature.input_shape), feature.output_shape
        output_shape = None if output_shape is None else tuple(output_shape)
        if id(table) not in tables:
            tables[id(table)] = _read_table(table)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"{feature!r} is no FeatureConfig with a TableConfig and shapes ({error}); give those "
            "of this package or of keras_rs"
        ) from error
    result = FeatureConfig(name, tables[id(table)], shape, output_shape)
    _check_shapes(result)
    return result


def fits(shape: Any, expected: Any) -> bool:
    """Return whether two shapes agree in rank, and beyond the batch where both have a number.

    Args:
        shape: A shape. Its first number, the size of the batch, is not compared.
        expected: Another shape, which begins with the batch as well.
    """
    if len(shape) != len(expected):
        return False
    pairs = zip(shape[1:], expected[1:], strict=True)
    return all(one == other or one is None or other is None for one, other in pairs)


def _read_table(table: Any) -> TableConfig:
    """Return a table configuration as one of this package; refuse what cannot be honoured."""
    given = {
        field.name: getattr(table, field.name)
        for field in dataclasses.fields(TableConfig)
        if field.name in _REQUIRED or hasattr(table, field.name)
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


def _check_shapes(feature: FeatureConfig) -> None:
    """Raise ValueError if the shapes of a feature do not fit each other or its table."""
    shape, output_shape = feature.input_shape, feature.output_shape
    if not shape:
        raise ValueError(f"feature {feature.name!r}: input_shape=() lacks the batch; give (None,)")
    is_combined = feature.table.combiner is not None and len(shape) > 1
    expected = (*(shape[:-1] if is_combined else shape), feature.table.embedding_dim)
    if output_shape is not None and not fits(output_shape, expected):
        raise ValueError(
            f"feature {feature.name!r}: output_shape={output_shape}, where ids of "
            f"shape {shape} from table {feature.table.name!r} give {expected}"
        )
