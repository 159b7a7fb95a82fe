"""Recommenders in Python: train them, load them, ask them."""

from __future__ import annotations

import copy
import csv
import functools
import json
import os
import reprlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from .errors import UnknownNameError
from .input.ratings import find_usual
from .text.columns import list_columns
from .text.vocabulary import close_names, whole
from .trained import (
    Result,
    Run,
    argument_names,
    check_count,
    export,
    given_items,
    is_missing,
    start_tensorflow,
    table_columns,
    table_rows,
    takes_settings,
    writing,
)

if TYPE_CHECKING:
    from .input.user_item_pairs import KnownItems
    from .tasks.recommend.recommend_model import TrainedRecommender

_COLUMNS = ("user", "item", "rating", "time")
Ranked = list[tuple[str, float]]
_RANKERS = 4  # that are kept


@takes_settings("recommend")
def train_recommender(
    pairs: Any,
    *,
    workdir: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    item_features: Any = None,
    user_features: Any = None,
    **settings: Any,
) -> Items:
    """Train a recommender on pairs of a user and an item.

    A rating below 0 (`disliked_below`) says that the user dislikes the item, unless ratings are
    predicted (`loss="squared_error"`).

    Args:
        pairs: An iterable of (user, item), (user, item, rating) or (user, item, rating, time), an
            array (N, 2 to 4); a table of pandas or pyarrow, whose columns have usual names such as
            `user_id`, or are in this order if no name tells otherwise, or are named by
            `user_column`, `item_column`, `rating_column` and `time_column`; a sparse matrix of
            scipy (users, items); or a path or glob of files.
        workdir: The folder of the run, where a run that was stopped goes on. None: a temporary one.
        item_features: Features of items, by which those without pairs are placed: a mapping from
            an item to a list of values, or to a mapping of columns to values or lists; or a table
            of pandas or pyarrow, or the path of a file, with a column of the items and columns of
            categories, between `|` if a cell has several. The tokens of the columns that
            `text_features` names are features.
        user_features: Features of users, likewise.
        verbose: None shows a bar on a terminal and in a notebook, and nothing elsewhere; True
            prints lines there; False shows nothing.
        settings: The flags of `lexrow train --task=recommend`, by name; and `preset`, the
            name of an example of settings, which others beside it change.

    Raises:
        ValueError: A setting is not possible, or the pairs or features cannot be used.
        RunError: Training failed.
        KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.

    Example:
        >>> pairs = [(user, item) for user in range(20) for item in range(user % 4, 12, 2)]
        >>> items = train_recommender(pairs, dim=4, epochs=2, min_count=1)
        >>> len(items)
        12
    """
    run = Run(workdir)
    features = {"user": user_features, "item": item_features}
    given = {f"{kind}_features": kind for kind, some in features.items() if some is not None}
    run.settings("recommend", settings | given)  # refuses a wrong one before anything is read
    with run.undoing():
        for flag, kind in given.items():
            settings[flag] = _features_file(run, features[kind], kind)
        if not isinstance(pairs, str | os.PathLike):
            with run.writing("pairs.csv", "pairs") as file:
                settings |= _write_pairs(file, pairs, settings)
            pairs = run.path / "pairs.csv"
        value, _ = run.corpus(pairs, "pairs", "(user, item)")
        run.train("recommend", value, settings, verbose, "pairs")
    return Items.load(run.path, run)


class Items(Result):
    """A trained recommender.

    Attributes:
        items: The names of the V items, most frequent first. Those of which only features are known
            come last.
        users: The names of the U users, likewise.
        item_vectors: (V, E) float32. The score of a user and an item is the product of their
            vectors, plus the mean rating if ratings are predicted.
        user_vectors: (U, E) float32.
    """

    _OURS = {
        "item_factors": "items.item_vectors",
        "user_factors": "items.user_vectors",
        "fit": "lexrow.train_recommender(pairs)",
        "save": 'lexrow.train_recommender(pairs, workdir="folder"), which stays',
    }

    def __init__(self, run: Run):
        config = run.config_of("recommend")
        start_tensorflow()
        from .tasks.recommend.recommend_model import load_recommender

        self._run = run
        self._set(load_recommender(config, run.workdir))

    def _set(self, trained: TrainedRecommender) -> None:
        """Set the recommender, and forget what was computed with another."""
        from .tasks.recommend.ranking_metrics import Ranker

        self._trained = trained
        self.items, self.users = trained.items.tokens, trained.users.tokens
        self._item_ids = {name: number for number, name in enumerate(self.items)}
        self._user_ids = {name: number for number, name in enumerate(self.users)}
        vars(self).pop("_vectors", None)
        make = functools.partial(Ranker, trained.model, trained.tables)
        # Finds the k best items of users; it is traced for each number of items.
        self._ranker = functools.lru_cache(_RANKERS)(make)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def __contains__(self, item: Any) -> bool:
        return str(item) in self._item_ids

    def export(self, path: str | os.PathLike[str], format: str = "vectors", **options: Any) -> None:
        """Write the model or its vectors to a file or folder.

        Args:
            format: `vectors`, `faiss`, `word2vec`, `safetensors` or `parquet`. The last three have
                `item_vectors` without the bias.
            options: Of `lexrow export` for the format.

        Raises:
            ValueError: There is no such format, or a name cannot be written in it.
            RunError: The file cannot be written.

        Example:
            >>> items.export("vectors_of_items", "vectors")
        """
        export(path, format, self._run, options)

    def __repr__(self) -> str:
        return f"<Items: {len(self.items):,} items, {len(self.users):,} users>"

    @property
    def item_vectors(self) -> np.ndarray:
        """See the class."""
        return self._vectors[1]

    @property
    def user_vectors(self) -> np.ndarray:
        """See the class."""
        return self._vectors[0]

    def recommend(
        self,
        users: Any,
        k: int = 10,
        candidates: Sequence[Any] | None = None,
        exclude: Sequence[Any] = (),
        include_known: bool = False,
    ) -> Any:
        """Return the best items of users, each with its score, best first.

        Args:
            users: Users, or one: then one list is returned instead of a list of lists.
            k: The number of items.
            candidates: Rank these items only; None ranks all.
            exclude: Items to leave out.
            include_known: Whether to rank items of the user's training pairs as well.

        Raises:
            KeyError: A user or an item is not known; the message names similar ones.

        Example:
            >>> [name for name, _ in items.recommend(3, k=1)]
            ['3']
        """
        check_count("k", k)
        is_one = isinstance(users, str) or not isinstance(users, Iterable)
        users_N = _ids(users, self._user_ids, "user")
        known = None if include_known else self._trained.known
        left_out = set(_ids(exclude, self._item_ids, "item").tolist())
        if candidates is not None:
            allowed_N = _ids(candidates, self._item_ids, "item")
            found = [self._rank_candidates(user, allowed_N, known, left_out) for user in users_N]
        else:
            found = self._rank(users_N, k + len(left_out), known, left_out)
        ranked = [[(self.items[item], score) for item, score in pairs][:k] for pairs in found]
        return ranked[0] if is_one else ranked

    def recommend_for(
        self,
        items: Sequence[Any],
        k: int = 10,
        include_known: bool = False,
        disliked: Sequence[Any] = (),
    ) -> Ranked:
        """Return the best items for a person who was not in training, each with its score.

        Args:
            items: Items that the person chose.
            k: The number of items.
            include_known: Whether to rank these items as well.
            disliked: Items that the person dislikes.

        Raises:
            KeyError: An item is not known; the message names similar ones.
            ValueError: No item is given, an item is both chosen and disliked, or the model
                predicts ratings.

        Example:
            >>> len(items.recommend_for([1, 3], k=2))
            2
        """
        from .tasks.recommend import new_users

        check_count("k", k)
        chosen_N, disliked_N = (
            np.unique(_ids(names, self._item_ids, "item")).astype(np.int32)
            for names in (items, disliked)
        )
        if not len(chosen_N):
            raise ValueError("items has no item; give at least one")
        with argument_names():
            how = chosen_N, disliked_N, include_known
            return new_users.rank_items(self._trained, self._ranker(k), *how)

    def add_items(self, features: Any) -> None:
        """Add items by their features, so that they are recommended, ranked and compared as others.

        They are written to the workdir, so that exports and later loads have them, too. Where it
        cannot be written, this object, its exports and its pickles alone have them, and its
        `workdir` becomes a temporary one. A feature that no item in training had is left out, and
        an item that is known with the same features stays as it is.

        Args:
            features: As `item_features` of `train_recommender`.

        Raises:
            ValueError: The model was trained without features of items, or an item is known with
                other features. Then none is added.

        Example:
            >>> genres = {item: ["even" if item % 2 == 0 else "odd"] for item in range(12)}
            >>> pairs = [(u, i) for u in range(20) for i in range(u % 2, 10, 2)]
            >>> found = train_recommender(pairs, item_features=genres, dim=4, epochs=2)
            >>> found.add_items({"new": ["odd"]})
            >>> len(found)
            13
        """
        self._add("item", features)

    def add_users(self, features: Any) -> None:
        """Add users by their features; see `add_items`.

        Example:
            >>> ages = {user: ["old" if user > 9 else "young"] for user in range(20)}
            >>> pairs = [(u, i) for u in range(20) for i in range(u % 2, 10, 2)]
            >>> found = train_recommender(pairs, user_features=ages, dim=4, epochs=2)
            >>> found.add_users({"new": ["old"]})
            >>> "new" in found.users
            True
        """
        self._add("user", features)

    def _add(self, kind: str, features: Any) -> None:
        """Add users or items by their features."""
        from .tasks.recommend import recommend_data
        from .tasks.recommend.recommend_model import extend

        run = self._run if os.access(self._run.path, os.W_OK) else copy.copy(self._run)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "features.jsonl")
            names = {path: "features"}
            if isinstance(features, str | os.PathLike):
                path = os.fspath(features)
            else:
                with writing(Path(path)) as file:
                    _write_features(file, features, "features", kind)
            config = run.config_of("recommend")
            with argument_names(names, {f"add_{kind}s": "features"}):
                added = recommend_data.add(config.ratings, run.workdir, {kind: path})
                self._set(extend(self._trained, config, added, run.workdir))
        self._run = run

    def similar_items(self, item: Any, k: int = 10) -> Ranked:
        """Return the items whose vectors are nearest to that of an item by cosine, best first.

        Raises:
            KeyError: The item is not known; the message names similar ones.

        Example:
            >>> len(items.similar_items(1, k=3))
            3
        """
        row = int(_ids([item], self._item_ids, "item")[0])
        return _nearest(self.item_vectors, self.items, row, k)

    def similar_users(self, user: Any, k: int = 10) -> Ranked:
        """Return the users whose vectors are nearest to that of a user by cosine, best first.

        Raises:
            KeyError: The user is not known; the message names similar ones.

        Example:
            >>> len(items.similar_users(1, k=3))
            3
        """
        row = int(_ids([user], self._user_ids, "user")[0])
        return _nearest(self.user_vectors, self.users, row, k)

    def evaluate(
        self, pairs: Any, top: str | int | Sequence[int] = "", **columns: str
    ) -> dict[str, Any]:
        """Return the scores of pairs that are not in training, such as `recall@10`.

        Args:
            pairs: As for `train_recommender`.
            top: Lengths of the lists to score, such as 10 or [10, 20]; empty for those of the run.
            columns: The names of columns, as there.

        Raises:
            ValueError: No pair can be scored.

        Example:
            >>> items.evaluate([(3, 3)], top=3)["recall@3"]
            1.0
        """
        from .tasks.recommend import recommend_job

        others: dict[str, Any] = {"score_users": "all", **columns}
        if not isinstance(top, str) or top:
            others["top"] = top
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pairs.csv")
            names = {path: "pairs"}
            if isinstance(pairs, str | os.PathLike):
                path = os.fspath(pairs)
            else:
                with writing(Path(path)) as file:
                    written = _write_pairs(file, pairs, columns)
                others |= {f"{one}_column": "" for one in _COLUMNS} | written
            with argument_names(names, {"heldout": "pairs"}):
                config = self._run.config_with(**others)
                return recommend_job.evaluate(config, self._run.workdir, path, self._trained)[1]

    @functools.cached_property
    def _vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of users and of items."""
        return self._ranker(1).vectors()

    def _rank(
        self, users_N: np.ndarray, k: int, known: KnownItems | None, left_out: set[int]
    ) -> list[list[tuple[int, float]]]:
        """Return the best items of users as ids, with their scores."""
        found = []
        for _, ids_MK, scores_MK in self._ranker(k).blocks(users_N, known):
            for ids_K, scores_K in zip(ids_MK.tolist(), scores_MK.tolist(), strict=True):
                pairs = zip(ids_K, scores_K, strict=True)
                found.append([pair for pair in pairs if pair[0] >= 0 and pair[0] not in left_out])
        return found

    def _rank_candidates(
        self, user: int, allowed_N: np.ndarray, known: KnownItems | None, left_out: set[int]
    ) -> list[tuple[int, float]]:
        """Return some items in the order of their scores for a user, as ids with scores."""
        skipped = set(left_out)
        if known is not None:
            skipped |= set(known.items_N[slice(*known.starts_U[user : user + 2])].tolist())
        ids_N = np.array([item for item in allowed_N.tolist() if item not in skipped], np.int32)
        scores_N = self._ranker(1).ratings(np.full(len(ids_N), user, np.int32), ids_N)
        order_N = np.lexsort([ids_N, -scores_N])
        return [(int(ids_N[place]), float(scores_N[place])) for place in order_N]


def _ids(names: Any, ids: dict[str, int], kind: str) -> np.ndarray:
    """Return the ids of users or items, or of one, (N,) int32; raise KeyError for unknown ones."""
    is_one = isinstance(names, str) or not isinstance(names, Iterable)
    names = [names] if is_one else list(names)
    found = [ids.get(str(name), ids.get(whole(str(name)))) for name in names]
    for name, number in zip(names, found, strict=True):
        if number is None:
            close = " or ".join(map(repr, close_names(str(name), list(ids))))
            remedy = f"did you mean {close}?" if close else "give one of the training pairs"
            raise UnknownNameError(f"{str(name)[:60]!r}: unknown {kind}; {remedy}")
    return np.array(found, np.int32)


def _nearest(vectors_VE: np.ndarray, names: Sequence[str], row: int, k: int) -> Ranked:
    """Return the k names of highest cosine with that of a row, best first, without it."""
    check_count("k", k)
    lengths_V = np.maximum(np.linalg.norm(vectors_VE, axis=1), np.finfo(np.float32).tiny)
    cosines_V = (vectors_VE @ vectors_VE[row]) / (lengths_V * lengths_V[row])
    cosines_V[row] = -np.inf
    order_K = np.argsort(-cosines_V, kind="stable")[: min(k, len(names) - 1)]
    return [(names[other], float(cosines_V[other])) for other in order_K]


def _features_file(run: Run, features: Any, kind: str) -> str:
    """Return the file of features, which is written to the workdir unless a path is given."""
    if isinstance(features, str | os.PathLike):
        return os.fspath(features)
    name, argument = f"{kind}s.jsonl", f"{kind}_features"
    with run.writing(name, argument) as file:
        _write_features(file, features, argument, kind)
    return str(run.path / name)


def _write_features(file: TextIO, features: Any, argument: str, kind: str) -> None:
    """Write features of users or items as JSON lines.

    Args:
        features: See `train_recommender`.
        argument: The name of the argument, for messages.
        kind: `user` or `item`.
    """
    rows: Iterable[Mapping[str, Any]]
    if (names := table_columns(features)) is not None:
        rows = (dict(zip(map(str, names), row, strict=True)) for row in table_rows(features, names))
    elif isinstance(features, Mapping):
        rows = (
            {kind: name, **(values if isinstance(values, Mapping) else {"features": values})}
            for name, values in features.items()
        )
    else:
        raise ValueError(
            f"{argument} is {type(features).__name__}; give a table, a mapping from a name to a "
            "list of values, or the path of a file"
        )
    is_empty = True
    for row in rows:
        file.write(json.dumps(row, default=_plain) + "\n")
        is_empty = False
    if is_empty:
        raise ValueError(f"{argument} has no row; give at least one")


def _plain(cell: Any) -> Any:
    """Return a cell that JSON cannot hold as text, a list, a number of Python or None."""
    if hasattr(cell, "tolist"):  # of numpy
        return cell.tolist()
    if isinstance(cell, Iterable) and not isinstance(cell, bytes):
        return sorted(cell, key=str) if isinstance(cell, Set) else list(cell)
    return None if is_missing(cell) else str(cell)


def _write_pairs(file: TextIO, pairs: Any, settings: Mapping[str, Any]) -> dict[str, str]:
    """Write pairs as CSV, and return the settings of its columns.

    Args:
        settings: May name columns of a table.
    """
    kinds: Sequence[str] = ()
    if (names := table_columns(pairs)) is not None:
        found = _find_columns(names, settings)
        kinds, pairs = list(found), table_rows(pairs, list(found.values()))
    elif hasattr(pairs, "tocoo"):  # of scipy
        matrix = pairs.tocoo()
        values_N = matrix.data.astype(float) if matrix.data.dtype == bool else matrix.data
        pairs = zip(matrix.row, matrix.col, values_N, strict=True)
    elif not isinstance(pairs, Iterable):
        raise ValueError(f"pairs is {type(pairs).__name__}; give a path or pairs")
    rows, width = csv.writer(file), 0
    for place, pair in enumerate(given_items(pairs)):
        values = list(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else []
        if not place:
            width = len(values)
            kinds = kinds or _COLUMNS[:width]
            rows.writerow(kinds)
        if not 2 <= width <= 4 or len(values) != width:
            wanted = f"with {width} values, as the first" if place else "of a user and an item"
            shown = " ".join(reprlib.repr(pair).split())
            raise ValueError(f"pairs[{place}] is {shown}; give one {wanted}")
        if any(map(is_missing, values)):
            raise ValueError(f"pairs[{place}] is {pair!r}; a value is missing (None or NaN)")
        rows.writerow(values)
    if not width:
        raise ValueError("pairs has no pair; give at least one")
    return {f"{one}_column": one for one in kinds}


def _find_columns(names: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a table of pairs, by `user`, `item`, and `rating` and `time` if any.

    Settings name them; else usual names do, and those of another name are in this order.
    """
    given = {kind: settings.get(f"{kind}_column", "") for kind in _COLUMNS}
    shown = list_columns([*map(str, names)])
    for name in given.values():
        if name and name not in names:
            raise ValueError(f"pairs has no column {name!r}; it has {shown}")
    usual = {kind: names[place] for kind, place in find_usual([*map(str, names)]).items()}
    if any(given.values()):
        found = {kind: name or usual.get(kind) for kind, name in given.items()}
    else:
        in_order = zip(_COLUMNS, names if len(names) <= len(_COLUMNS) else (), strict=False)
        found = {kind: name for kind, name in in_order if name not in usual.values()} | usual
    if None in (found.get("user"), found.get("item")):
        raise ValueError(
            f"pairs has the columns {shown}; name those of users and items by user_column and "
            "item_column"
        )
    return {kind: found[kind] for kind in _COLUMNS if found.get(kind) not in (None, "")}
