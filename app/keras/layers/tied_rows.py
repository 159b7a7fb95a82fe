"""The embedding whose rows an output layer takes for those of its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras

from ...system.xla import under_xla
from ..backend import model_of_step
from ..tables.table_kinds import has_cache, table_is_compiled
from .embedding import RowEmbedding


class TiedRows:
    """The embedding that an output layer is tied to, which may be known by its name only at first.

    The layer has this object in an attribute. It would take the embedding itself for a part of it.

    Args:
        layer: The name of the output layer.
        words: The number of its words.
        tied_to: A `RowEmbedding`, or its name.

    Attributes:
        name: The name of the embedding.
    """

    def __init__(self, layer: str, words: int, tied_to: Any):
        self._layer, self._words = layer, words
        self._units: int | None = None  # the size of the hidden vectors; None before `build`
        self._find: Callable[[], RowEmbedding] | None = None
        if isinstance(tied_to, str):
            self.name = tied_to
        else:
            self._tie(tied_to)

    def build(self, units: int) -> None:
        """Build the embedding, if it is known; raise ValueError if its rows have another size."""
        self._units = units
        if self._find is not None:
            self._check_columns(self._find())

    def copy(self, other: TiedRows, memo: dict[int, Any]) -> None:
        """Take the embedding of another layer, or its copy in the memo of `copy.deepcopy`."""
        if other._find is None:
            return
        embedding = other._find()

        def find() -> RowEmbedding:
            """Tie the copy at its first use: the embedding may be copied after its layer."""
            self._tie(memo.get(id(embedding), embedding))
            return self._find()

        self._find = find

    def find(self, hidden: Any) -> None:
        """Find the embedding by its name among the layers that symbolic hidden vectors come from.

        A saved model has no more than the name, so an embedding that is given must be there, too.
        """
        if not hasattr(hidden, "_keras_history"):
            return  # in a call of a model, such as one of a subclass
        same_name = (each for each in _layers_before(hidden) if each.name == self.name)
        found = list({id(each): each for each in same_name}.values())
        if len(found) > 1:
            raise ValueError(
                f"{self._layer}: {len(found)} layers before this one have the name of "
                f"tied_to={self.name!r}; rename the others"
            )
        if not found or (self._find is not None and found[0] is not self._find()):
            raise ValueError(
                f"{self._layer}: tied_to={self.name!r} is no layer that the hidden vectors "
                "come from, so the model would neither train nor save it; compute them from it, or "
                "write a subclass of keras.Model that has both layers"
            )
        if self._find is None:
            self._tie(found[0])

    def has_cache(self) -> bool:
        """Return whether the embedding is known, and has a cache on the device."""
        return self._find is not None and has_cache(self._find())

    def rows(self) -> Any:
        """Return the variable with the rows.

        Raises:
            ValueError: The embedding is not known, has LoRA, has a table that XLA cannot read where
                it compiles the code, or is no part of a model that trains the output layer, though
                it is not frozen.
        """
        if self._find is None:
            raise ValueError(
                f"{self._layer}: no layer {self.name!r} is before this one in the model; give "
                "tied_to= the RowEmbedding itself"
            )
        embedding, model = self._find(), model_of_step()
        if embedding.lora_enabled:
            raise ValueError(f"{self._layer}: tied_to={self.name!r} has LoRA; leave out one")
        if under_xla() and not table_is_compiled(embedding):
            # Of rows in a cache, XLA would take NaN for those that are not there.
            cache = f" and hot_rows={embedding.hot_rows}" if self.has_cache() else ""
            raise ValueError(
                f"{self._layer}: XLA cannot compile look-ups in tied_to={self.name!r}, which has "
                f"table={embedding.table!r}{cache}; leave out jit_compile"
            )
        rows = embedding._embeddings
        # Keras calls a model that is not built to build it, and makes a warning of an error there.
        if model is None or not model.built or not embedding.trainable:
            return rows
        if any(variable is rows for variable in model.variables):
            return rows
        raise ValueError(
            f"{self._layer}: tied_to={embedding.name!r} is no layer of {model.name}, which would "
            "neither train nor save its rows; make it an attribute of the model, or set its "
            "trainable = False"
        )

    def _tie(self, embedding: Any) -> None:
        """Take the rows of an embedding as those of the words; raise ValueError if they differ."""
        if not isinstance(embedding, RowEmbedding):
            raise ValueError(
                f"{self._layer}: tied_to={getattr(embedding, 'name', embedding)!r} is a "
                f"{type(embedding).__name__}; give a lexrow.keras.RowEmbedding, or its name"
            )
        self.name, self._find = embedding.name, lambda: embedding
        if embedding.input_dim < self._words:
            raise ValueError(
                f"{self._layer}: tied_to={embedding.name!r} has {embedding.input_dim:,} rows, "
                f"fewer than the {self._words:,} words of vocabulary_size"
            )
        if self._units is not None:
            self._check_columns(embedding)

    def _check_columns(self, embedding: RowEmbedding) -> None:
        """Build the embedding; raise ValueError if its rows do not fit the hidden vectors."""
        if embedding.output_dim != self._units:
            raise ValueError(
                f"{self._layer}: the hidden vectors have {self._units} numbers, and the rows of "
                f"{embedding.name} have {embedding.output_dim}; put keras.layers.Dense"
                f"({embedding.output_dim}) before this layer"
            )
        if not embedding.built:
            embedding.build()


def _layers_before(tensor: Any) -> Iterator[keras.layers.Layer]:
    """Yield the layers of a functional model that a symbolic tensor comes from, nearest first."""
    tensors, seen = [tensor], set()
    for each in tensors:
        operation = getattr(getattr(each, "_keras_history", None), "operation", None)
        if operation is None or operation in seen:
            continue
        seen.add(operation)
        if isinstance(operation, keras.layers.Layer):
            yield from operation._flatten_layers()
        tensors += [t for node in operation._inbound_nodes for t in node.input_tensors]
