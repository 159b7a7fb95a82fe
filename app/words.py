"""Word vectors in Python: train them, load them, ask them."""

from __future__ import annotations

import functools
import numbers
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .checkpoints.checkpoint import is_finished
from .errors import UnknownNameError, UsageError
from .evaluation import lexicon, score_report
from .evaluation.benchmarks import Score
from .settings import CorpusConfig
from .text import vector_files
from .text.subwords import compose_unseen
from .text.unicode_rules import normal_form, normalize
from .text.vocabulary import join_words
from .trained import (
    Result,
    Run,
    argument_names,
    as_bytes,
    check_count,
    check_limit,
    check_there,
    export,
    load_run,
    start_tensorflow,
    takes_settings,
    train_on_text,
)
from .types import WordVectors

if TYPE_CHECKING:
    import pandas as pd
    from gensim.models import KeyedVectors
    from matplotlib.axes import Axes

    from .text.tokenize import Tokenizer

_TEXTS = 4096  # that are split at a time
_BY_WORD = ("words", "matrix", "norms")  # the fields of a lexicon with an entry for each word
Query: TypeAlias = str | np.ndarray


@takes_settings("words")
def train_words(
    corpus: Any,
    *,
    workdir: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    **settings: Any,
) -> Words:
    """Train word vectors.

    Args:
        corpus: A path or glob of text files, or an iterable of texts or of lists of tokens, which
            is read once, before training. If it raises an error, the workdir stays as it is.
        workdir: The folder of the run, where a run that was stopped goes on. None: a temporary one.
        verbose: None shows a bar on a terminal and in a notebook, and nothing elsewhere; True
            prints lines there; False shows nothing.
        settings: The flags of `lexrow train --task=words`, by name; and `preset`, the
            name of an example of settings, which others beside it change.

    Raises:
        ValueError: A setting is not possible, or the corpus cannot be used.
        RunError: Training failed.
        KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.

    Example:
        >>> words = train_words([["a", "b", "c"]] * 100, dim=4, epochs=1)
        >>> sorted(words.tokens)
        ['a', 'b', 'c']
    """
    return load_run(Words, train_on_text("words", corpus, workdir, settings, verbose))


class Words(Result):
    """Words and their vectors, most frequent word first.

    Attributes:
        tokens: The V words.
        vectors: Their vectors, (V, D) float32, or float16 if they were loaded so.
        counts: Occurrences in the training text, (V,) int64; None if they are not known.
    """

    _OURS = {
        "wv": "words itself",
        "index_to_key": "words.tokens",
        "key_to_index": "words.tokens.index(word)",
        "has_index_for": "word in words",
        "vector_size": "words.vectors.shape[1]",
        "get_dimension": "words.vectors.shape[1]",
        "words": "words.tokens",
        "get_words": "words.tokens",
        "get_vector": "words[word]",
        "get_word_vector": "words[word]",
        "get_sentence_vector": "words.encode(text)",
        "get_nearest_neighbors": "words.most_similar(word)",
        "get_analogies": "words.most_similar(positive, negative)",
        "similar_by_word": "words.most_similar(word)",
        "similar_by_vector": "words.most_similar(vector)",
        "evaluate_word_pairs": "words.evaluate([], pairs=[path])",
        "evaluate_word_analogies": "words.evaluate([], analogies=[path])",
        "save": "words.export(path)",
        "save_word2vec_format": "words.export(path)",
        "save_model": 'words.export(path, "fasttext")',
    }

    def __init__(
        self,
        vectors: WordVectors,
        run: Run | None = None,
        tokenizer: str = "whitespace",
        limit: int = 0,
        is_part: bool = False,
    ):
        self._run, self._limit, self._is_part = run, limit, is_part
        self._corpus = run.config.corpus if run else CorpusConfig(tokenizer=tokenizer)
        self._all = vectors if run else vectors._replace(form=normal_form(self._corpus))
        self.tokens, self.vectors, self.counts = vectors.tokens, vectors.matrix, vectors.counts

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        run: Run | None = None,
        tokenizer: str = "",
        limit: int = 0,
        dtype: str = "float32",
    ) -> Words:
        """Load the words of a workdir, or of a file of word2vec, GloVe, fastText or an export.

        Args:
            path: The workdir or the file.
            run: The run of the workdir, if it is open already.
            tokenizer: How texts are split for the vectors of a file: `whitespace` (by default) or
                `unicode`. A workdir has its own.
            limit: Load only so many words, the most frequent (the first of a file); 0 loads all.
                Of the table of a workdir only these rows are read, so its checksum is not compared.
            dtype: `float16` keeps the vectors in half the memory; they are computed with in
                float32, some thousand at a time.

        Raises:
            FileNotFoundError: There is no such file or folder.
            ValueError: The file cannot be read, the workdir has no run, or there is no such dtype.
            RunError: The workdir has no checkpoint that can be read.

        Example:
            >>> words.export("vectors.bin", "word2vec_binary")
            >>> Words.load("vectors.bin")
            <Words: 5 words, 3 columns>
        """
        check_limit("limit", limit)
        dtype = getattr(dtype, "__name__", dtype)  # np.float16 is a class
        if dtype not in ("float32", "float16"):
            raise ValueError(f"dtype={dtype!r}: give float32 or float16")
        if tokenizer not in ("", "whitespace", "unicode"):
            raise ValueError(f"tokenizer={tokenizer!r}: give whitespace or unicode")
        path = check_there(path)
        is_run = os.path.isdir(path)
        if tokenizer and is_run:
            raise ValueError(f"tokenizer={tokenizer!r}: a workdir has its own; leave it out")
        with argument_names():
            from .tasks import trained_vectors

            most = limit + 1 if limit else 0  # one more shows whether words are left out
            if is_run:
                if trained_vectors.needs_tensorflow(path):
                    start_tensorflow()
                run = run or Run(path)
                if run.config.run.task == "recommend":
                    raise UsageError(f"{path}: a recommender, which has no words; name another run")
                found = trained_vectors.load(path, most)
            else:
                run, found = None, vector_files.read(path, most)
            is_part = 0 < limit < len(found.tokens)
            found = found.first(limit)
            with np.errstate(over="ignore"):  # a copy, so that the memory of the others is free
                found = found._replace(matrix=found.matrix.astype(dtype, copy=is_part))
            if dtype == "float16":
                vector_files.check_finite(path, found.tokens, found.matrix)
            return cls(found, run, tokenizer or "whitespace", limit, is_part)

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, word: str) -> bool:
        """Return whether a word has a vector, of its own or of its n-grams."""
        if not isinstance(word, str):
            return False
        is_row = self._rows([word])[0] is not None
        return is_row or not lexicon.find_unknown(self._lexicon, [word])

    def __getitem__(self, word: str | Sequence[str]) -> np.ndarray:
        """Return the vector of a word, (D,) float32, or those of N words, (N, D).

        Raises:
            KeyError: A word has no vector; the message names similar words.
            TypeError: It is no word, but a number.
        """
        vectors_ND = self._lookup(_texts_of(word))
        return vectors_ND[0] if isinstance(word, str) else vectors_ND

    def __reduce__(self) -> tuple:
        if self._run is None:
            return Words, (self._all, None, self._corpus.tokenizer, self._limit, self._is_part)
        return load_run, (type(self), self._run, self._part())

    def _part(self) -> dict[str, Any]:
        """Return how these words were loaded."""
        return {"limit": self._limit, "dtype": self.vectors.dtype.name}

    def _check_sif(self, sif: float) -> None:
        """Raise ValueError for weights of counts that are not those of all words."""
        if sif and self.counts is None:
            raise ValueError(f"sif={sif:g} needs counts of words, which a file of vectors lacks")
        if sif and self._is_part:
            raise ValueError(
                f"sif={sif:g} needs the counts of all words, and limit={self._limit} left some "
                "out; load them without limit"
            )

    def __repr__(self) -> str:
        return f"<Words: {len(self):,} words, {self.vectors.shape[1]} columns>"

    @functools.cached_property
    def _lexicon(self) -> lexicon.Lexicon:
        return lexicon.make_lexicon(self._all, "exact")

    def most_similar(
        self,
        positive: Query | Sequence[Query] = (),
        negative: Query | Sequence[Query] = (),
        topn: int = 10,
        restrict_to: int = 0,
    ) -> list[tuple[str, float]]:
        """Return the words nearest to a sum of words by cosine, best first, without these words.

        Args:
            positive: Words, or vectors (D,), that are added as unit vectors.
            negative: Words or vectors that are subtracted.
            topn: The number of words to return.
            restrict_to: Search only this many words, the most frequent; 0 searches all.

        Raises:
            KeyError: A word has no vector; the message names similar words.
            ValueError: No word is given, or the sum is zero.

        Example:
            >>> words.most_similar(positive=["king", "woman"], negative=["man"])[0][0]
            'queen'
        """
        check_count("topn", topn, " word")
        check_limit("restrict_to", restrict_to)
        if isinstance(negative, numbers.Number):
            raise ValueError(f"negative={negative}: give words; topn is how many are returned")
        added, subtracted = _listed(positive), _listed(negative)
        given = [*added, *subtracted]
        if not given:
            raise ValueError("no word is given; give at least one")
        signs = np.array([1] * len(added) + [-1] * len(subtracted), np.float32)
        words = [one for one in given if isinstance(one, str)]
        units = iter(self._units(words))
        rows_ND = np.array(
            [next(units) if isinstance(one, str) else self._unit(one) for one in given]
        )
        query_D = signs @ rows_ND
        if np.linalg.norm(query_D) < 1e-5:  # unit vectors that cancel leave rounding errors
            raise ValueError("the words cancel out; give different ones")
        excluded = [row for word in words for row in lexicon.find_rows(self._lexicon, word)]
        searched = self._lexicon
        if restrict_to:
            parts = {name: getattr(searched, name)[:restrict_to] for name in _BY_WORD}
            searched = searched._replace(**parts)
        return lexicon.search(searched, query_D[None], [excluded], topn)[0]

    def similarity(self, first: str, second: str) -> float:
        """Return the cosine of two words; raise KeyError if one has no vector.

        Example:
            >>> words.similarity("king", "king")
            1.0
        """
        units_2D = self._units(_texts_of([first, second]))
        return float(units_2D[0] @ units_2D[1])

    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word that is farthest from the mean of some words, by cosine.

        Raises:
            KeyError: A word has no vector; the message names similar words.
            ValueError: No word is given.

        Example:
            >>> words.doesnt_match(["king", "man", "queen"])
            'queen'
        """
        words = _texts_of(words)
        if not words:
            raise ValueError("words is empty; give a list of words")
        units_ND = self._units(words)
        return words[int((units_ND @ units_ND.mean(axis=0)).argmin())]

    def evaluate(
        self,
        benchmarks: Sequence[str] | None = None,
        pairs: Sequence[str] = (),
        analogies: Sequence[str] = (),
        restrict_to: int = 0,
    ) -> dict[str, Score]:
        """Return scores by name: WordSim-353, SimLex-999 and analogies, and those of own files.

        Args:
            benchmarks: Names of `ws353`, `simlex999`, `analogy`, which come with gensim. None: all
                that are installed.
            pairs: Files of word pairs; a line has two words and a score.
            analogies: Files of analogies; a line has four words.
            restrict_to: Use only this many words, the most frequent; 0 uses all.

        Raises:
            ValueError: There is no such benchmark, or a file cannot be read.

        Example:
            >>> words.evaluate([], pairs=["pairs.tsv"])["pairs.tsv"].value
            1.0
        """
        check_limit("restrict_to", restrict_to)
        with argument_names():
            names = [benchmarks] if isinstance(benchmarks, str) else benchmarks
            scores = score_report.run(
                self._all, names, _paths(pairs), _paths(analogies), restrict=restrict_to
            )
        return {score.name: score for score in scores}

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text, as training made them; of a file, cut at white space.

        Example:
            >>> words.tokenize("The king")
            ['The', 'king']
        """
        return self._tokenize([text])[0]

    def encode(self, texts: str | Iterable[str], sif: float = 0.0) -> np.ndarray:
        """Return the vectors of texts, (N, D) float32: the means of the vectors of their words.

        A text without a known word has a vector of zeros.

        Args:
            texts: N texts, or one, whose vector is (D,).
            sif: a of the weight a / (a + share of the word in the training text) of each word
                (smooth inverse frequency; Arora, Liang and Ma 2017, algorithm 1, without the
                removal of the first component), such as 1e-3. With 0, no word is weighted.

        Raises:
            ValueError: An item is not a text, or weights need counts of all words, which are not
                known.

        Example:
            >>> words.encode(["king queen", "man"]).shape
            (2, 3)
        """
        self._check_sif(sif)
        tokens = self._tokenize([texts] if isinstance(texts, str) else texts)
        known = {word: None for text in tokens for word in text}
        known = dict.fromkeys(word for word in known if word in self)
        vectors_UD = self._lookup(list(known))
        if sif:
            rows = self._rows(list(known))
            counts_U = np.array([0 if row is None else self.counts[row] for row in rows])
            shares_U = counts_U / self.counts.sum()
            vectors_UD = vectors_UD * (sif / (sif + shares_U))[:, None]
        place = {word: number for number, word in enumerate(known)}
        means_ND = np.zeros((len(tokens), self.vectors.shape[1]), np.float32)
        for mean_D, text in zip(means_ND, tokens, strict=True):
            rows = [place[word] for word in text if word in place]
            if rows:
                mean_D[:] = vectors_UD[rows].mean(axis=0)
        return means_ND[0] if isinstance(texts, str) else means_ND

    def export(
        self, path: str | os.PathLike[str], format: str = "word2vec", **options: Any
    ) -> None:
        """Write the vectors to a file or folder.

        Args:
            format: `word2vec`, `word2vec_binary`, `fasttext`, `saved_model`, `projector`,
                `safetensors`, `parquet` or `static_embedding`.
            options: Of `lexrow export` for the format, such as `sif`.

        Raises:
            ValueError: There is no such format, or a word cannot be written in it, or the format
                or `sif` needs all words, and they were loaded with `limit`.
            RunError: The file cannot be written.

        Example:
            >>> words.export("vectors.bin", "word2vec_binary")
        """
        if self.counts is not None:
            self._check_sif(options.get("sif", 0.0))
        vectors = self._all._replace(matrix=self.vectors.astype(np.float32, copy=False))
        limit = self._limit if self._is_part else 0
        export(path, format, self._run, options, vectors, limit)

    def to_gensim(self) -> KeyedVectors:
        """Return the vectors as `gensim.models.KeyedVectors`, with the counts of the words.

        Example:
            >>> words.to_gensim().most_similar("king", topn=1)[0][0]
            'man'
        """
        from gensim.models import KeyedVectors

        keyed = KeyedVectors(self.vectors.shape[1])
        keyed.add_vectors(self.tokens, self.vectors)
        if self.counts is not None:
            keyed.expandos["count"] = np.asarray(self.counts)
        return keyed

    def to_pandas(self) -> pd.DataFrame:
        """Return the vectors as a table of pandas, whose index are the words.

        Example:
            >>> words.to_pandas().shape
            (5, 3)
        """
        import pandas as pd

        return pd.DataFrame(self.vectors, index=pd.Index(self.tokens, name="token"))

    def plot(self, words: Sequence[str], ax: Axes | None = None) -> Axes:
        """Draw words as points in the plane, by the two main components of their vectors.

        The components are those of the given words alone (PCA). It needs matplotlib.

        Args:
            words: At least two words.
            ax: The axes of matplotlib to draw in; None makes a new figure.

        Raises:
            KeyError: A word has no vector; the message names similar words.
            ImportError: matplotlib is not installed.

        Example:
            >>> ax = words.plot(["king", "queen", "man", "woman"])
            >>> [text.get_text() for text in ax.texts]
            ['king', 'queen', 'man', 'woman']
        """
        from .tasks.pictures import plot_rows

        if isinstance(words, str) or len(words) < 2:
            raise ValueError(f"words is {words!r}; give a list of at least two words")
        return plot_rows(words, self[words], ax)

    def train(
        self, corpus: Any, epochs: int = 1, verbose: bool | None = None, **settings: Any
    ) -> Words:
        """Train on with more text, whose new words get vectors, too; return the words then.

        Args:
            corpus: As for `train_words`.
            epochs: Passes over this text.
            verbose: As for `train_words`.
            settings: Further settings that differ from those of the run.

        Raises:
            ValueError: These are vectors of a file, the run was stopped before its end, or a
                setting is not possible.
            RunError: Training failed.

        Example:
            >>> words = train_words([["a", "b", "c"]] * 100, dim=4, epochs=1)
            >>> "d" in words.train([["c", "d"]] * 100)
            True
        """
        if self._run is None:
            raise ValueError("these are vectors of a file; train words with train_words first")
        if not is_finished(self._run.workdir):
            raise ValueError(
                f"training in {self.workdir} has not ended; first go on to its end with "
                f"train_words(corpus, workdir={self.workdir!r}, epochs=…)"
            )
        check_count("epochs", epochs)
        run, done = self._run, self._run.epochs + epochs
        with run.undoing():
            value, _ = run.corpus(corpus)
            run.train("words", value, {"epochs": done, "grow_vocab": True, **settings}, verbose)
        again = Words.load(run.path, run, **self._part())
        vars(self).clear()
        vars(self).update(vars(again))
        return self

    @functools.cached_property
    def _split(self) -> Tokenizer:
        """The function that splits texts."""
        start_tensorflow()
        from .text.tokenize import make_tokenizer

        return make_tokenizer(self._corpus)

    def _tokenize(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the tokens of each text; raise ValueError if an item is no text."""
        given = as_bytes(texts)
        return [
            [token.decode() for token in tokens]
            for first in range(0, len(given), _TEXTS)
            for tokens in self._split(given[first : first + _TEXTS]).to_list()
        ]

    @functools.cached_property
    def _row_of(self) -> dict[str, int]:
        """The row of each word, in the form of the training text; of equal ones, the first."""
        names = normalize(self.tokens, self._all.form)
        return {name: row for row, name in reversed([*enumerate(names)])}

    def _rows(self, words: Sequence[str]) -> list[int | None]:
        """Return the row of each word, None for a word without one."""
        keys = normalize(words, self._all.form)
        return [self._row_of.get(key, self._row_of.get(join_words(key))) for key in keys]

    def _lookup(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, (N, D) float32; raise KeyError if one has none."""
        rows = self._rows(words)
        unseen = [word for word, row in zip(words, rows, strict=True) if row is None]
        self._check(unseen)
        vectors_ND = self.vectors[[row or 0 for row in rows]].astype(np.float32, copy=False)
        if unseen:
            places = [place for place, row in enumerate(rows) if row is None]
            keys = normalize(unseen, self._all.form)
            vectors_ND[places] = compose_unseen(keys, self._all.ngrams)
        return vectors_ND

    def _units(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of words, divided by their length, (N, D); raise KeyError."""
        self._check(words)
        return lexicon.unit_vectors(self._lexicon, words)[0]

    def _unit(self, vector: Any) -> np.ndarray:
        """Return a vector divided by its length, (D,) float32; raise ValueError if it has none."""
        try:
            vector, columns = np.asarray(vector, np.float64), self.vectors.shape[1]
        except (TypeError, ValueError):
            raise ValueError(f"{vector!r} is neither a word nor a vector; give these") from None
        if vector.shape != (columns,):
            raise ValueError(
                f"a vector has the shape {vector.shape}; give one of {columns} columns"
            )
        length = np.linalg.norm(vector)
        if not length or not np.isfinite(length):
            raise ValueError("a vector is zero or not finite; give another")
        return np.asarray(vector / length, np.float32)

    def _check(self, words: Sequence[str]) -> None:
        """Raise KeyError if a word has no vector."""
        unknown = lexicon.find_unknown(self._lexicon, words)
        if unknown:
            raise UnknownNameError(lexicon.explain_unknown(self._lexicon, unknown[0]))


def _paths(files: Sequence[str]) -> Sequence[str]:
    """Return names of files as a list; one alone is a list of one."""
    return [os.fspath(files)] if isinstance(files, str | os.PathLike) else files


def _texts_of(words: Any) -> list[str]:
    """Return words as a list; one alone is a list of one. Raise TypeError if one is no text."""
    is_list = isinstance(words, Iterable) and not isinstance(words, str)
    names = list(words) if is_list else [words]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no word; give text, or words.vectors[row] for a row")
    return names


def _listed(queries: Query | Sequence[Query]) -> list[Query]:
    """Return words or vectors as a list; one alone is a list of one."""
    is_vector = getattr(queries, "ndim", 0) == 1 and np.asarray(queries).dtype.kind in "biuf"
    is_one = is_vector or isinstance(queries, str | numbers.Number)
    return [queries] if is_one else list(queries)  # type: ignore[list-item]
