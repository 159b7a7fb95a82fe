"""Load the pairs of users and items of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from absl import logging

from ...checkpoints import checkpoint
from ...checkpoints import workdir as files
from ...checkpoints.workdir import Workdir
from ...errors import RunError, UsageError
from ...input import named_features, ratings
from ...input.named_features import NO_FEATURES, ByName, NamedFeatures, SideFeatures, with_names
from ...input.ratings import Ratings
from ...input.user_item_pairs import Split, split_pairs
from ...settings import CorpusConfig, RatingsConfig, RecommendConfig
from ...system.checked_files import damaged, read_json
from ...tables import memory
from ...tables.arrays import read_npz, write_npz
from ...text import corpus
from ...text.vocabulary import Vocabulary, check_names, load_names, save_names, whole

Features = TypeVar("Features", NamedFeatures, NamedFeatures | None)
_ADDED = {kind: {str: [str]} for kind in SideFeatures._fields}  # of added.json: see `ByName`
_ARRAYS = ("user_starts", "user_features", "item_starts", "item_features")  # of features.npz


def read_split(config: RecommendConfig, sources: Sequence[str]) -> Split:
    """Read the pairs of a run and split them into training and held-out pairs; read the features.

    Raises:
        UsageError: The files are malformed, or lack ratings that the flags need.
        RunError: A file cannot be read.
    """
    settings, given = config.ratings, config.input.heldout
    pairs, heldout = ratings.read(sources, settings), None
    if given:
        heldout = ratings.read(corpus.resolve_heldout(config.corpus, given), settings)
    if settings.weighted and pairs.ratings_N is None:
        raise UsageError("--weighted needs ratings, and the pairs have none; leave it out")
    rules = config.input.heldout_share, config.vocabulary.min_count, config.run.seed
    below, features = disliked_below(config), _read_features(settings)
    split = split_pairs(pairs, heldout, settings, *rules, below, features)
    for kind, found in split.features._asdict().items():
        if found is not None and not found.names.tokens:
            one = kind.removesuffix("s")
            flag = f"{one}_features"
            raise UsageError(
                f"--{flag}={getattr(settings, flag)}: no {one} of the pairs has a feature there; "
                f"check its names of {kind}"
            )
    return split


def disliked_below(config: RecommendConfig) -> float:
    """Return the rating below which an item is disliked; none is if the ratings are predicted."""
    return -math.inf if config.model.loss == "squared_error" else config.ratings.disliked_below


def _read_features(settings: RatingsConfig) -> tuple[ByName | None, ByName | None]:
    """Return the features of users and of items by name; None without a file.

    Raises:
        UsageError: A file is malformed, or none has a column of --text_features.
        RunError: A file cannot be read.
    """
    flags = {kind: f"{kind}_features" for kind in ("user", "item")}
    files = {kind: getattr(settings, flag) for kind, flag in flags.items()}
    paths = [one for kind in flags if files[kind] for one in _find_files(files[kind], flags[kind])]
    found = {column for path in paths for column in named_features.names(path)}
    missing = [name for name in _text_columns(settings) if name not in found]
    if missing:
        shown = ", ".join(sorted(found))
        raise UsageError(
            f"--text_features={missing[0]}: the features have the columns {shown}; name one of them"
        )
    users, items = (
        read_features(settings, kind, given, flags[kind]) if given else None
        for kind, given in files.items()
    )
    return users, items


def read_features(settings: RatingsConfig, kind: str, files: str, flag: str) -> ByName:
    """Return the features in files, which are named as those of --corpus.

    Args:
        kind: `user` or `item`.
        flag: The flag that names the files, for messages.

    Raises:
        UsageError: A file is missing or malformed.
        RunError: A file cannot be read.
    """
    column = settings.user_column if kind == "user" else settings.item_column
    paths = _find_files(files, flag)
    return named_features.read(paths, kind, column, _text_columns(settings), flag)


def _find_files(files: str, flag: str) -> Sequence[str]:
    """Return the files that a flag names."""
    return corpus.resolve(CorpusConfig(corpus=files), flag=flag)


def _text_columns(settings: RatingsConfig) -> list[str]:
    """Return the columns of --text_features."""
    return [name.strip() for name in settings.text_features.split(",") if name.strip()]


def trained(names: Vocabulary) -> int:
    """Return the number of users or items that have a training pair; these come first."""
    return int(np.count_nonzero(names.counts))


def check_same_names(split: Split, files_named: str, workdir: Workdir) -> None:
    """Raise UsageError unless the pairs have the users and items of the workdir, in the same order.

    A workdir without names passes. Blanks around a name do not count.

    Args:
        files_named: The value of --corpus.

    Raises:
        UsageError: The names differ, as after a change in how the files are read.
    """
    for current, path in ((split.users, workdir.users), (split.items, workdir.items)):
        if not path.exists():
            continue
        # An earlier version kept blanks around names, and fractions of whole numbers.
        recorded = [whole(name.strip()) for name in load_names(path).tokens]
        if recorded != [name.strip() for name in current.tokens]:
            other = f"other {path.stem} than --corpus={files_named}"
            raise UsageError(f"{path} has {other}; train in a new --workdir")


def check_features(features: SideFeatures, workdir: Workdir) -> None:
    """Raise UsageError unless the features are those of the workdir.

    A workdir without a checkpoint passes: its files may be of a run that broke off among them.
    """
    if not checkpoint.list_checkpoints(workdir.checkpoints):
        return
    kinds = zip(SideFeatures._fields, features, load_features(workdir), strict=True)
    for kind, current, recorded in kinds:
        if not _is_same(current, recorded):
            flag = f"--{kind.removesuffix('s')}_features"
            raise UsageError(
                f"{flag}: the run of --workdir={workdir.path} has other features of {kind}; give "
                "the file that it had, or train in a new --workdir"
            )


def _is_same(features: NamedFeatures | None, others: NamedFeatures | None) -> bool:
    """Return whether two lists of features are the same."""
    if features is None or others is None:
        return features is others
    is_same = map(np.array_equal, features[1:], others[1:])
    return features.names.tokens == others.names.tokens and all(is_same)


def load_features(workdir: Workdir) -> SideFeatures:
    """Return the features that `record` wrote.

    Raises:
        DamagedError: A file is missing or damaged.
        RunError: A file cannot be read.
    """
    if not any(path.exists() for path in (workdir.features, *_feature_files(workdir))):
        return NO_FEATURES
    arrays = read_npz(workdir.features, _ARRAYS)
    pairs = zip(arrays[::2], arrays[1::2], _feature_files(workdir), strict=True)
    return SideFeatures(
        *(
            NamedFeatures(load_names(path), starts, ids_N) if len(starts) else None
            for starts, ids_N, path in pairs
        )
    )


def add(
    settings: RatingsConfig, workdir: Workdir, given: Mapping[str, str]
) -> Mapping[str, ByName]:
    """Add users and items to a trained run, which are placed by their features.

    They are in one file of the workdir, so a kill leaves all of them or none. Those that are known
    with the same features stay as they are.

    Args:
        settings: Those of the run.
        given: The files of features by `user` and `item`.

    Returns:
        What `read_added` returns then.

    Raises:
        UsageError: The run has no features of these, one is known with other features, or a file is
            malformed.
        RunError: A file cannot be read, or nothing is trained.
    """
    with workdir.lock():
        if not checkpoint.list_checkpoints(workdir.trained):
            raise RunError(f"{workdir.path}: nothing is trained there yet; train it first")
        added, features = read_added(workdir), load_features(workdir)
        for kind, files_given in given.items():
            name = f"{kind}s"
            found = getattr(features, name)
            if found is None:
                raise UsageError(
                    f"this run was trained without features of {name}; train with --{kind}_features"
                )
            by_name = read_features(settings, kind, files_given, f"add_{name}")
            path = getattr(workdir, name)
            check_names(by_name, path)
            known = with_added(load_names(path), found, added[name], workdir)
            by_name = _without_known(by_name, *known, kind)
            sizes = np.diff(with_names(by_name.values(), found.names).starts)
            if unplaced := [one for one, size in zip(by_name, sizes, strict=True) if not size]:
                logging.warning(
                    "%d of %d %s have no feature of training, such as %s; they are placed at the "
                    "mean",
                    *(len(unplaced), len(by_name), name, unplaced[0][:60]),
                )
            added = {**added, name: {**added[name], **by_name}}
        files.write_json(workdir.added, added)
    return added


def _without_known(
    by_name: ByName, names: Vocabulary, features: NamedFeatures, kind: str
) -> ByName:
    """Return users or items without those of some names; raise UsageError if features differ."""
    rows = {whole(name): row for row, name in enumerate(names.tokens)}
    known = [name for name in by_name if name in rows]
    given = with_names([by_name[name] for name in known], features.names)
    for number, name in enumerate(known):
        pairs = (given, number), (features, rows[name])
        one, other = ({*of.features_N[slice(*of.starts[row : row + 2])]} for of, row in pairs)
        if one != other:
            raise UsageError(
                f"{name[:60]!r}: the {kind} is known already, with other features; leave it out"
            )
    return {name: some for name, some in by_name.items() if name not in rows}


def read_added(workdir: Workdir) -> dict[str, ByName]:
    """Return the features of `users` and `items` that `add` has added.

    Raises:
        DamagedError: The file is damaged.
        RunError: The file cannot be read.
    """
    return read_json(workdir.added, _ADDED, optional=True) or {kind: {} for kind in _ADDED}


def with_added(
    names: Vocabulary, features: Features, by_name: ByName, workdir: Workdir
) -> tuple[Vocabulary, Features]:
    """Return users or items, and their features, with those that `read_added` has returned.

    Raises:
        DamagedError: Some were added, but there are no features.
    """
    if not by_name:
        return names, features
    if features is None:
        raise damaged(workdir.added, "the run has no such features")
    more = with_names(by_name.values(), features.names)
    counts = np.concatenate([names.counts, np.zeros(len(by_name), np.int64)])
    starts = np.concatenate([features.starts, features.starts[-1] + more.starts[1:]])
    ids_N = np.concatenate([features.features_N, more.features_N])
    return (
        Vocabulary([*names.tokens, *by_name], counts, names.total),
        NamedFeatures(features.names, starts, ids_N),
    )


def _write_features(features: SideFeatures, workdir: Workdir) -> None:
    """Write features; a run without any has no such files."""
    if features == NO_FEATURES:
        for path in (workdir.features, *_feature_files(workdir)):
            path.unlink(missing_ok=True)
        return
    none = NamedFeatures(Vocabulary([], np.zeros(0, np.int64), 0), *np.zeros((2, 0), np.int64))
    sides = [none if found is None else found for found in features]
    for found, path in zip(sides, _feature_files(workdir), strict=True):
        if found is not none:
            save_names(found.names, path)
    arrays = [array for found in sides for array in found[1:]]
    write_npz(workdir.features, dict(zip(_ARRAYS, arrays, strict=True)))


def _feature_files(workdir: Workdir) -> tuple[Path, Path]:
    """Return the files of the names of features, of users and of items."""
    return workdir.user_features, workdir.item_features


def memory_item(*parts: Ratings) -> memory.Item:
    """Return the host memory of pairs, twice the size of their arrays, as tf.data copies them."""
    size = sum(array.nbytes for part in parts for array in part[2:6] if array is not None)
    count = sum(len(part.users_N) for part in parts)
    return memory.Item("pairs", f"{count:,}", memory.HOST, 2 * size)


def record(split: Split, fingerprint: dict[str, Any], mean: float, workdir: Workdir) -> None:
    """Write names of ids, features, known items, the fingerprint and the mean to the workdir.

    Args:
        fingerprint: The fingerprint of the corpus (see `corpus.fingerprint`).
        mean: Mean rating, which the model adds to its scores.
    """
    _write_features(split.features, workdir)  # first, as the names of some may be refused
    files.write_json(workdir.corpus, {"fingerprint": fingerprint, "mean": mean})
    save_names(split.users, workdir.users)
    save_names(split.items, workdir.items)
    write_npz(workdir.known, split.known._asdict())


def about(split: Split, sources: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines of the banner about the pairs and features: a title and a text each."""
    pairs = f"{len(split.train.users_N):,} of {len(split.users.tokens):,} users"
    items = f"{len(split.items.tokens):,} items in {len(sources)} file(s): {split.train.layout}"
    lines = [("pairs", f"{pairs} and {items}")]
    sides = zip(SideFeatures._fields, (split.users, split.items), split.features, strict=True)
    for kind, names, found in sides:
        if found is not None:
            new, none = len(names.tokens) - trained(names), int((np.diff(found.starts) == 0).sum())
            text = f"{len(found.names.tokens):,} of {kind}; {new:,} {kind} have no pair"
            lines.append(("features", text + f"; {none:,} have none" * bool(none)))
    if split.disliked_N is not None:
        shown = f"{np.count_nonzero(split.disliked_N):,} of the pairs are of disliked items"
        lines.append(("disliked", shown))
    if split.repeated:
        lines.append(("repeated", f"{split.repeated:,} repeated pairs were merged"))
    if len(split.heldout.users_N) or split.left_out:
        heldout, users = len(split.heldout.users_N), len(np.unique(split.heldout.users_N))
        shown = f"{heldout:,} pairs of {users:,} users{describe_left_out(split.left_out)}"
        lines.append(("held out", shown))
    return lines


def describe_left_out(left_out: int) -> str:
    """Return a part of a sentence on held-out pairs that are not scored; empty if there are none.

    Args:
        left_out: The number of pairs.
    """
    why = "pairs that are in training, too, and pairs whose user or item is not"
    return f"; {left_out:,} left out: {why}" if left_out else ""
