"""`help` and editors show the arguments of each public class and function, as of Keras'."""

import inspect
import pathlib
import re

import keras
import pytest
from sklearn.base import BaseEstimator

import app.keras
import app.sklearn

NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD
PUBLIC = {name: getattr(api, name) for api in (app.keras, app.sklearn) for name in api.__all__}
# What takes the place of something of Keras.
STOCK = {
    "SGD": keras.optimizers.SGD,
    "Adagrad": keras.optimizers.Adagrad,
    "RowwiseAdagrad": keras.optimizers.Adagrad,
    "Ftrl": keras.optimizers.Ftrl,
    "LazyAdam": keras.optimizers.Adam,
    "LazyAdamW": keras.optimizers.AdamW,
    "LossScaleOptimizer": keras.optimizers.LossScaleOptimizer,
    "RowEmbedding": keras.layers.Embedding,
    "TableMetrics": keras.callbacks.Callback,
    "load_model": keras.saving.load_model,
}


def named(function):
    """Return the arguments that have a place, in their order: name -> default."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is NAMED}


@pytest.mark.parametrize("name", STOCK)
def test_arguments_are_those_of_keras(name):
    ours, stock = named(PUBLIC[name]), named(STOCK[name])
    if isinstance(stock.get("name"), str):  # Keras 3.12 names an optimizer after its class here
        stock["name"] = None
    if name == "RowEmbedding":  # of later versions of Keras only
        stock.setdefault("quantization_config", None)
    assert list(ours.items()) == list(stock.items())


def test_a_table_of_sums_has_the_arguments_of_keras_rs():
    first = named(PUBLIC["RowEmbedding"])
    expected = [*list(first.items())[: list(first).index("lora_rank")], ("combiner", "mean")]
    assert list(named(PUBLIC["RowEmbeddingReduce"]).items()) == expected


# What Keras calls, and hardly anyone else.
PASSED_ON = "add_weight", "add_variable", "compute_output_spec", "compute_output_shape"


@pytest.mark.parametrize("name", PUBLIC)
def test_no_argument_hides_in_a_star(name):
    functions = {name: PUBLIC[name]}
    if inspect.isclass(PUBLIC[name]):
        functions = dict(inspect.getmembers(PUBLIC[name], inspect.isfunction))
    assert functions
    for method, function in functions.items():
        is_public = method == "__init__" or method[0] != "_" and method not in PASSED_ON
        if is_public and function.__module__.startswith("app."):
            kinds = [each.kind for each in inspect.signature(function).parameters.values()]
            assert inspect.Parameter.VAR_POSITIONAL not in kinds, function
            # A class passes them on to Keras' own, as the classes of Keras do.
            assert method == "__init__" or inspect.Parameter.VAR_KEYWORD not in kinds, function


@pytest.mark.parametrize("name", ["LazyAdam", "LazyAdamW", "SGD", "Adagrad", "Ftrl"])
def test_every_argument_reaches_the_optimizer(name):
    given = {"clipnorm": 2.0, "ema_momentum": 0.5, "loss_scale_factor": 4.0, "name": "mine"}
    given |= {"gradient_accumulation_steps": 3, "weight_decay": 0.25, "rounding": "nearest"}
    own = set(named(PUBLIC[name])) & {"beta_1", "epsilon", "momentum", "beta"}
    given |= dict.fromkeys(own, 0.125)
    given |= {"correct_skipped": True} if "Lazy" in name else {}
    optimizer = PUBLIC[name](0.5, **given)
    assert float(optimizer.learning_rate.numpy()) == 0.5
    assert {each: getattr(optimizer, each) for each in given} == given


@pytest.mark.parametrize("name", app.sklearn.__all__)
def test_parameters_of_an_estimator_are_its_arguments(name):
    kind = PUBLIC[name]
    assert issubclass(kind, BaseEstimator)
    assert kind().get_params() == named(kind)


def test_checkers_of_types_read_the_package():
    assert (pathlib.Path(app.__file__).parent / "py.typed").is_file()


def test_the_version_is_written_once():
    text = (pathlib.Path(app.__file__).parents[1] / "pyproject.toml").read_text()
    assert re.fullmatch(r"\d+\.\d+\.\d+", app.__version__)
    assert 'dynamic = ["version"]' in text
