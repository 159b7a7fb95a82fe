"""The settings by the name of their flag: defaults, what has an effect, and names elsewhere."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import UsageError
from . import Config
from .classify_config import ClassifyConfig
from .recommend_config import RecommendConfig
from .setting import as_text, typed
from .words_config import LanguageModelConfig, WordsConfig

TASKS: dict[str, type[Config]] = {
    "words": WordsConfig,
    "language_model": LanguageModelConfig,
    "classify": ClassifyConfig,
    "recommend": RecommendConfig,
}
Fields = dict[str, dataclasses.Field]
_ADAGRAD = ("adagrad", "rowwise_adagrad")
# A flag, its values, and the flags that have an effect with these values only. A flag in several
# lines needs all of them.
_NEEDS: tuple[tuple[str, Sequence[Any], str], ...] = (
    ("strategy", ("mirrored", "multi_worker"), "sync_steps sync_dtype"),
    ("strategy", ("none", "multi_worker"), "device"),
    ("tokenizer", ("unicode",), "drop_numbers fold_case drop_punctuation"),
    ("phrases", (1, 2, 3, 4), "phrase_score phrase_threshold phrase_min_count"),
    ("model", ("skipgram",), "contexts"),
    ("max_ngram", range(1, 101), "min_ngram ngram_buckets"),
    ("cosine", (True,), "temperature"),
    ("loss", ("negative_sampling",), "negatives shared_negatives group_tokens negative_power"),
    ("loss", ("sampled_softmax", "nce", "sampled_items"), "samples"),
    ("loss", ("sampled_softmax", "nce"), "sampler"),
    ("loss", ("class_softmax",), "class_levels class_rule classes"),
    ("loss", ("adaptive_softmax",), "cutoffs"),
    ("loss", ("auto", "softmax", "class_softmax", "sampled_softmax", "nce"), "tie_weights"),
    ("loss", ("sampled_items", "in_batch_softmax"), "cosine temperature start"),
    ("loss", ("sampled_items", "in_batch_softmax", "bpr"), "weighted disliked_below"),
    ("loss", ("sampled_items",), "user_pairs"),
    ("loss", ("bpr",), "pair_negatives"),
    ("optimizer", (*_ADAGRAD, "ftrl"), "initial_accumulator"),
    ("optimizer", ("rowwise_adagrad",), "learning_rate_power"),
    ("optimizer", ("momentum",), "momentum nesterov"),
    ("optimizer", ("lazy_adam", "lazy_adamw"), "beta_1 beta_2 epsilon correct_skipped"),
    ("optimizer", ("lazy_adamw",), "weight_decay"),
    ("optimizer", ("ftrl",), "l1 l2"),
    ("table", ("host", "sharded"), "hot_rows stage_steps"),
    ("table", ("host",), "table_file"),
    ("table", ("dynamic",), "table_gb max_age"),
)
# Flag -> the flags that it needs, and their values.
NEEDS = {
    name: {other: values for other, values, names in _NEEDS if name in names.split()}
    for name in " ".join(names for *_, names in _NEEDS).split()
}

# Values of earlier versions, and those with which their runs can go on.
FORMER = {("strategy", "parameter_server"): "none", ("cache", "disk"): "auto"}
# What workdirs did that are older than these flags.
BEFORE = {"contexts": "drawn", "learning_rate_power": -0.5, "disliked_below": -1e15}


def lacking(name: str, values: Mapping[str, Any]) -> str:
    """Return a flag without whose value in `NEEDS` a flag has no effect; empty if it has one."""
    needed = NEEDS.get(name, {}).items()
    return next((other for other, known in needed if values[other] not in known), "")


def needed(name: str, other: str, fields: Fields) -> list[str]:
    """Return the values of another flag with which a flag has an effect, as text."""
    known = NEEDS[name][other]
    if isinstance(known, range):
        return [f"{known[0]} to {known[-1]}"]
    choices = fields[other].metadata["choices"] or known
    return [as_text(value) for value in known if value in choices]


def task_of(values: Mapping[str, Any]) -> type[Config]:
    """Return the settings of the task among these values; by default, of word vectors."""
    return TASKS.get(values.get("task", ""), WordsConfig)


def fields_of(task: type[Config]) -> Fields:
    """Return the flags of a task by name: dataclass fields, with its own defaults and choices."""
    key: Any = task
    return _fields_of(key)


@functools.cache
def _fields_of(task: Any) -> Fields:
    """Return the flags of a task by name; see `fields_of`."""
    found = {}
    for section in vars(task()).values():
        for shared in dataclasses.fields(section):
            field = copy.copy(shared)
            field.default = getattr(section, field.name)
            choices = task.choices.get(field.name, field.metadata["choices"])
            field.metadata = {**field.metadata, "choices": choices}  # type: ignore[assignment]
            found[field.name] = field
    return {name: field for name, field in found.items() if _is_used(name, task, found)}


def _is_used(name: str, task: type[Config], found: Fields) -> bool:
    """Return whether a task has a flag, and the value of the flag that it needs."""
    return name not in task.unused and all(
        other not in task.unused
        and not set(found[other].metadata["choices"] or values).isdisjoint(values)
        for other, values in NEEDS.get(name, {}).items()
    )


def fields() -> Fields:
    """Return the flags of all tasks by name, as the first task that has them defines them."""
    found: Fields = {}
    for task in TASKS.values():
        found = {**fields_of(task), **found}
    return found


def by_name(config: Config) -> dict[str, Any]:
    """Return the value of every flag that the task has, by name."""
    sections = vars(config).values()
    values = {name: value for section in sections for name, value in vars(section).items()}
    return {name: values[name] for name in fields_of(type(config)) if name in values}


def defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of all flags of a task beside some values, also of the flags in these.

    Args:
        values: Flag name -> value, with the task.
    """
    task = task_of(values)
    usual: dict[str, Any] = {name: field.default for name, field in fields_of(task).items()}
    if {**usual, **values}["loss"] == "negative_sampling":
        usual["learning_rate_power"] = -0.3
    usual["learning_rate"] = task.learning_rate({**usual, **values})
    return usual


def from_names(values: Mapping[str, Any]) -> Config:
    """Return the settings of the task among these values; the inverse of `by_name`.

    Args:
        values: Flag name -> value. A missing flag has its default for the task, whatever the
            other values are. Names that the task does not have are ignored.
    """
    task = task_of(values)
    known = values.keys() & fields_of(task).keys()
    sections = {}
    for name, section in vars(task()).items():
        given = {setting: values[setting] for setting in vars(section) if setting in known}
        sections[name] = dataclasses.replace(section, **given)
    return task(**sections)


def typed_value(name: str, value: Any) -> Any:
    """Return a value of a Python program in the type of its setting.

    Args:
        value: The value; see `setting.typed` for what is allowed.

    Raises:
        UsageError: The value has another type.
    """
    try:
        return typed(fields()[name], value)
    except ValueError as error:
        shown = " ".join(repr(value).split())[:60]
        raise UsageError(f"--{name}={shown}: {error}") from None


# Names of other libraries and of earlier versions.

_MOST, _LEAST_SIMILAR = 3, 0.7  # flags that are spelled alike, and difflib's ratio for them
# Flags, with a value where one does the same, and their names in gensim, fastText, scikit-learn,
# implicit, Keras, RecBole and others, in lower case without `_` and `-`.
_MEANINGS = {
    "dim": "size vectorsize embeddingsize embeddingdim embsize outputdim factors nfactors "
    "numfactors ncomponents dimension dimensions",
    "learning_rate": "lr alpha startalpha eta eta0 learningrateinit baselr",
    "epochs": "epoch iter iters iterations nepochs numepochs niter maxiter numtrainepochs",
    "corpus": "input inputfile corpusfile sentences texts train trainfile traindata dataset data",
    "workdir": "output outputdir modeldir savedir logdir checkpointdir",
    "window": "ws windowsize contextsize",
    "negatives": "neg negative negativesamples nnegatives numneg ns",
    "pair_negatives": "trainnegsamplenum",
    "negative_power": "nsexponent",
    "subsample": "sample t samplingthreshold",
    "loss=hierarchical_softmax": "hs",
    "model=skipgram": "sg",
    "model=cbow": "cbow",
    "min_count": "mincountlabel mindf minfreq minfrequency",
    "max_vocab_size": "maxfinalvocab vocabsize numwords maxtokens maxfeatures nwords",
    "min_ngram": "minn",
    "max_ngram": "maxn",
    "ngram_buckets": "bucket hashbuckets",
    "buckets": "bucket hashbuckets",
    "word_ngrams": "ngramrange ngrams",
    "intra_op_threads": "thread threads workers numworkers numthreads nthreads njobs numthread",
    "row_l2": "regularization reg regweight l2reg regularizer",
    "weight_decay": "decay wd",
    "l2": "regularization",
    "seed": "randomstate randomseed rngseed",
    "batch_tokens": "batchsize batchwords batch trainbatchsize",
    "hidden": "units hiddensize hiddenunits nhid rnnsize rnnunits",
    "dropout": "dropoutrate droprate drop dropoutp",
    "tie_weights": "tied tie tievectors tieembeddings tiewordembeddings weighttying",
    "fold_case": "lowercase lower tolower",
    "label_prefix": "label prefix",
    "class_weights": "classweight",
    "initial_model": "pretrainedmodel inputmodel",
    "heldout": "valid validation validationdata valfile testfile test autotunevalidation",
    "heldout_share": "validationsplit testsize valsize",
    "patience": "earlystopping stoppingstep nochange",
    "optimizer": "optim solver learner trainer",
    "clip_global_norm": "clip clipnorm globalclipnorm maxgradnorm clipgradnorm",
    "warmup": "warmupsteps warmupratio",
    "epsilon": "eps",
    "phrase_threshold": "threshold",
    "cell": "rnntype celltype",
    "vectors": "model modelpath embeddings w2v wv",
    "k": "topn topk n top numresults",
    "items": "item itemids likeditems",
}

_SERVERS = "parameter servers are gone; leave it out, as --strategy=multi_worker needs none"
_SERVICE = "the tf.data service is gone; leave it out, as each process reads its text itself"
_AUDIT = "the steps are audited by the tests alone; leave it out"
# Flags of earlier versions, which flagfiles of then have, and what to do without them.
GONE = {
    "exchange": _SERVERS,
    "ps": _SERVERS,
    "data_service": _SERVICE,
    "data_workers": _SERVICE,
    "audit": _AUDIT,
    "noaudit": _AUDIT,
    "profile_on_slow": "profiles are of chosen steps only; give --profile_steps=START,STOP",
    "layers": "the neural recommenders are gone; leave it out",
    "shard_rule": "rows are divided into shards in turn; leave it out",
    "class_devices": "classes are on one device; leave it out, or give --table=sharded",
}
# The values with which a run is the same without these flags; by default any.
_AS_NOW = {"class_devices": "1", "shard_rule": "mod"}
# Values of --model of earlier versions, of the neural recommenders.
GONE_MODELS = ("gmf", "mlp", "neumf")


def is_gone(name: str, value: str) -> bool:
    """Return whether no run goes on with a flag and its value, which earlier versions had."""
    return value != _AS_NOW.get(name, value) or (name == "model" and value in GONE_MODELS)


def meant(name: str, known: Collection[str]) -> str:
    """Return a question for the flags that an unknown one may stand for.

    Args:
        name: The name of the unknown flag, without the dashes before it.
        known: The names of the flags that there are.

    Returns:
        A text such as `did you mean --dim?`; empty if there is no such flag.
    """
    plain = _plain(name)
    found = [flag for flag in known if _plain(flag) == plain]
    found = found or [
        flag
        for flag, names in _MEANINGS.items()
        if plain in names.split() and flag.partition("=")[0] in known
    ]
    found = found or difflib.get_close_matches(name.lower(), known, _MOST, _LEAST_SIMILAR)
    return f"did you mean {' or '.join(f'--{flag}' for flag in found)}?" if found else ""


def _plain(name: str) -> str:
    """Return a name in lower case without `_` and `-`: `minCount` and `min_count` are the same."""
    return re.sub("[-_]", "", name).lower()
