"""Score word vectors by judgements of word pairs and by analogies: `a is to b as c is to ?`.

Pairs: Spearman's rank correlation of cosines with the judgements of people, as in Finkelstein et
al. 2002 (WordSim-353) and Hill et al. 2015 (SimLex-999). Equal values share the mean of their
ranks.

Analogies: 3CosAdd (Mikolov et al. 2013, https://arxiv.org/abs/1301.3781; named by Levy and Goldberg
2014). The answer is the word nearest to b - a + c by cosine, on unit vectors, over the whole
vocabulary without the three question words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..text.reading import kind_of_other, read_lines
from .lexicon import Lexicon, find_rows, nearest_rows, unit_rows, unit_vectors

_PAIRS = "word pairs: one `word word score` a line, separated by tabs, commas or spaces"
_ANALOGIES = "analogies: `: section` lines, and four words on every other line"
_UNNAMED = "(no section)"


class Score(NamedTuple):
    """A score, the number of items behind it, and the protocol of its measurement.

    Attributes:
        name: The name of the benchmark, or the path of its file.
        measure: `spearman` (-1 to 1) or `accuracy` (0 to 1).
        value: The score; None if it is undefined.
        used: The number of items in the score.
        skipped: The number of items with an unknown word, which are not in the score.
        protocol: The rules of the measurement, in one line.
        note: The reason for an undefined score, else empty.
        parts: The scores of the sections of the file.
        words: The number of words of the file, and of those that are unknown; empty for a section.
    """

    name: str
    measure: str
    value: float | None
    used: int
    skipped: int
    protocol: str
    note: str = ""
    parts: tuple[Score, ...] = ()
    words: str = ""

    def __repr__(self) -> str:
        counts = f"{self.used:,} used, {self.skipped:,} skipped"
        return f"<Score {self.name}: {self.measure} {self.value}, {counts}>"


def read_pairs(path: str | Path) -> list[tuple[str, str, float]]:
    """Read pairs of words and their judged similarity from columns with tabs, commas or spaces.

    Columns after the third, `#` comments and empty lines are ignored, and so is a first line whose
    third column is not a number (a header).

    Raises:
        UsageError: The file cannot be read, a line is malformed, or there is no pair.
    """
    pairs: list[tuple[str, str, float]] = []
    header = False
    for number, text in _numbered_lines(path, _PAIRS):
        separator = next((mark for mark in "\t," if mark in text), None)
        fields = [field.strip() for field in text.split(separator)]
        try:
            judgement = float(fields[2])
        except (IndexError, ValueError):
            if not pairs and not header and len(fields) > 2:
                header = True
                continue
            judgement = math.nan
        if not math.isfinite(judgement) or not fields[0] or not fields[1]:
            raise UsageError(f"{path}, line {number}: {text[:60]!r} is no pair; wanted {_PAIRS}")
        pairs.append((fields[0], fields[1], judgement))
    if not pairs:
        raise UsageError(f"{path}: holds no pair; wanted {_PAIRS}")
    return pairs


def read_questions(path: str | Path) -> list[tuple[str, tuple[str, ...]]]:
    """Read questions, each with its section, from a file like Google's `questions-words.txt`.

    Lines that start with `#` or `//` are comments. Questions may stand before the first section.

    Raises:
        UsageError: The file cannot be read, a question has not four words, or there is no question.
    """
    questions: list[tuple[str, tuple[str, ...]]] = []
    section = _UNNAMED
    for number, text in _numbered_lines(path, _ANALOGIES):
        if text.startswith(":"):
            section = text[1:].strip() or _UNNAMED
        elif not text.startswith("//"):
            words = tuple(text.split())
            if len(words) != 4:
                raise UsageError(
                    f"{path}, line {number}: {text[:60]!r} has {len(words)} words, not 4; "
                    f"wanted {_ANALOGIES}"
                )
            questions.append((section, words))
    if not questions:
        raise UsageError(f"{path}: holds no question; wanted {_ANALOGIES}")
    return questions


def _numbered_lines(path: str | Path, format_text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the stripped text of each line, but skip empty lines and `#` comments.

    Raises:
        UsageError: The file cannot be read, is an archive, or is not UTF-8.
    """
    try:
        for number, line in read_lines(path, format_text):
            if number == 1 and (other := kind_of_other(line)):
                raise UsageError(f"{path} is {other[0]}; give a file of {format_text}")
            text = line.decode().strip()
            if text and not text.startswith("#"):
                yield number, text
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text; convert it: a file of {format_text}") from error


def score_pairs(lexicon: Lexicon, path: str | Path, name: str) -> Score:
    """Return Spearman's rho between judgements of word pairs and the cosines of their words.

    Args:
        path: A file of pairs, see `read_pairs`.

    Returns:
        The score over the pairs without an unknown word. Its value is None where rho is undefined:
        there are fewer than two such pairs, or all cosines or all judgements are equal.

    Raises:
        UsageError: See `read_pairs`.
    """
    pairs = read_pairs(path)
    words = [word for pair in pairs for word in pair[:2]]
    units_ND, known = unit_vectors(lexicon, words)
    usable_N = known.reshape(-1, 2).all(axis=1)
    judgements = np.array([judgement for *_, judgement in pairs])[usable_N]
    first_ND, second_ND = units_ND[::2][usable_N], units_ND[1::2][usable_N]
    rho = spearman(judgements, np.einsum("nd,nd->n", first_ND, second_ND))
    used, note = int(usable_N.sum()), ""
    if rho is None:
        note = "fewer than two known pairs" if used < 2 else "all values are equal"
    unknown = "pairs with an unknown word skipped"
    if lexicon.ngrams is not None:
        unknown = "unknown words have the vectors of their n-grams"
    line = f"Spearman's rho of cosine; {unknown}; {lexicon.protocol}"
    counted = _count_unknown(dict(zip(words, known.tolist(), strict=True)))
    return Score(name, "spearman", rho, used, len(pairs) - used, line, note, words=counted)


def spearman(x: np.ndarray, y: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two arrays (N,).

    It is None where it is undefined: N is below 2, or all numbers of an array are equal.
    """
    if len(x) < 2:
        return None
    x, y = (ranks - ranks.mean() for ranks in (_ranks(x), _ranks(y)))
    scale = math.sqrt((x @ x) * (y @ y))
    return float(x @ y) / scale if scale else None


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value from 1, float64; equal values share the mean rank."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[group.reshape(-1)]


def score_analogies(lexicon: Lexicon, path: str | Path, name: str) -> Score:
    """Return the share of questions whose nearest word is the right answer.

    Args:
        path: A file of questions, see `read_questions`.

    Returns:
        The accuracy over the questions without an unknown word; None if there is none. Its parts
        are `semantic` and `syntactic`, where the file has both, then each section. A section whose
        name begins with `gram` is syntactic, as in Google's file.

    Raises:
        UsageError: See `read_questions`.
    """
    questions = read_questions(path)
    asked = dict.fromkeys(word for _, words in questions for word in words)
    rows_of = {word: find_rows(lexicon, word) for word in asked}
    outcomes = _outcomes(lexicon, [[rows_of[word] for word in words] for _, words in questions])
    counted = _count_unknown({word: bool(rows) for word, rows in rows_of.items()})
    measure = "3CosAdd, question words excluded; questions with an unknown word skipped"
    line = f"{measure}; {lexicon.protocol}"

    def tally(title: str, chosen: list[bool | None]) -> Score:
        """Return the score of some outcomes, without parts; its value is None if all are None."""
        used = [outcome for outcome in chosen if outcome is not None]
        value = sum(used) / len(used) if used else None
        note = "" if used else "every question has an unknown word"
        return Score(title, "accuracy", value, len(used), len(chosen) - len(used), line, note)

    sections: dict[str, list[bool | None]] = {}
    kinds: dict[str, list[bool | None]] = {"semantic": [], "syntactic": []}
    for (section, _), outcome in zip(questions, outcomes, strict=True):
        sections.setdefault(section, []).append(outcome)
        kind = "syntactic" if section.startswith("gram") else "semantic"
        kinds[kind].append(outcome)
    shown = [*(kinds.items() if all(kinds.values()) else ()), *sections.items()]
    parts = tuple(tally(*item) for item in shown)
    return tally(name, outcomes)._replace(parts=parts, words=counted)


def _outcomes(lexicon: Lexicon, rows: list[list[tuple[int, ...]]]) -> list[bool | None]:
    """Return whether the answer to each question is right; None for one with an unknown word.

    All spellings of the first three words are excluded from the search, as gensim does. An answer
    is right in any spelling.

    Args:
        rows: The rows of the four words of each question, see `find_rows`.
    """
    known = {number: four for number, four in enumerate(rows) if all(four)}
    firsts = [[spellings[0] for spellings in four] for four in known.values()]
    a, b, c, _ = np.array(firsts, np.int64).reshape(-1, 4).T
    queries_ND = unit_rows(lexicon, b) - unit_rows(lexicon, a) + unit_rows(lexicon, c)
    excluded = [[row for spellings in four[:3] for row in spellings] for four in known.values()]
    answers, _ = nearest_rows(lexicon, queries_ND, 1, excluded)
    outcomes: list[bool | None] = [None] * len(rows)
    for (number, four), row in zip(known.items(), answers[:, 0].tolist(), strict=True):
        outcomes[number] = row in four[3]
    return outcomes


def _count_unknown(is_known: Mapping[str, bool]) -> str:
    """Return how many words of a file are unknown, for `Score.words`."""
    return f"{sum(not known for known in is_known.values()):,} of {len(is_known):,} words unknown"
