"""The metrics of output layers, and those of Keras that their output does not fit."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ..backend import owners_in_call

PERPLEXITY, ACCURACY, SAMPLED_LOSS = "perplexity", "accuracy", "sampled_loss"
_OWN_LOSS = "output_as_loss"  # the name by which Keras finds it
# The classes of Keras for functions of a user's own, and for values as they are.
_PLAIN = (keras.metrics.MeanMetricWrapper, keras.metrics.Mean, keras.metrics.Sum)


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


def check_compiled(layer: keras.layers.Layer) -> None:
    """Check that no model in the call stack compares the output of a layer with classes.

    Args:
        layer: An output layer, whose output is -log P.

    Raises:
        ValueError: The layer is an output of a compiled model, whose loss or one of whose metrics
            is a function of Keras.
    """
    for model in owners_in_call(keras.Model):
        names = getattr(model, "output_names", None) or []
        if not model.compiled or layer.name not in names:
            continue
        loss, metrics = model._compile_loss, model._compile_metrics
        if loss is not None:
            for given in _of_output(names, layer.name, loss._user_loss):
                if _is_of_keras(given, "fn", keras.losses.Loss):
                    raise ValueError(
                        f"{layer.name}: loss={_shown(given)} compares scores of classes with the "
                        "targets, and the output of this layer is -log P of each target; use "
                        f"compile(loss=lexrow.keras.output_as_loss)"
                    )
        given = [] if metrics is None else [metrics._user_metrics, metrics._user_weighted_metrics]
        for each in (each for g in given for each in _of_output(names, layer.name, g)):
            if _is_of_keras(each, "_fn", keras.metrics.Metric):
                raise ValueError(
                    f"{layer.name}: metrics=[{_shown(each)}] compares scores of classes with the "
                    "targets, and the output of this layer is -log P of each target; give the "
                    f"layer metrics=[{PERPLEXITY!r}, {ACCURACY!r}] instead"
                )


def _of_output(names: list[str], name: str, given: Any) -> list[Any]:
    """Return the losses or metrics, as a user gave them, of the output of this name."""
    if isinstance(given, dict):
        given = given.get(name)
    elif isinstance(given, list | tuple) and len(names) > 1:
        given = given[names.index(name)] if len(given) == len(names) else None
    return [each for each in keras.tree.flatten(given) if each is not None]


def _is_of_keras(given: Any, function: str, kind: type) -> bool:
    """Return whether a loss or metric is a function of Keras, or the name of one."""
    if given == _OWN_LOSS:
        return False
    if isinstance(given, kind) and not isinstance(given, str):
        if type(given) in _PLAIN or hasattr(given, function):
            inner = getattr(given, function, None)
            return inner is not None and inner.__module__.startswith("keras.")
        return type(given).__module__.startswith("keras.")
    return isinstance(given, str) or str(getattr(given, "__module__", "")).startswith("keras.")


def _shown(given: Any) -> str:
    """Return a loss or metric for a message."""
    return repr(given) if isinstance(given, str) else getattr(given, "name", "") or given.__name__
