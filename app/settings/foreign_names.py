"""The flags that a person means who writes the name of another library or an earlier version."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

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
# Flags of earlier versions, which flagfiles of then have, and what to do without them.
GONE = {"exchange": _SERVERS, "ps": _SERVERS, "data_service": _SERVICE, "data_workers": _SERVICE}


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
