"""Score word vectors by analogies: `a is to b as c is to ?`.

The answer is found by 3CosAdd (Mikolov et al. 2013, https://arxiv.org/abs/1301.3781; named by Levy
and Goldberg 2014). It is the word nearest to b - a + c by cosine, on unit vectors, over the whole
vocabulary without the three question words.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from .benchmark import Score, count_unknown, numbered_lines
from .lexicon import Lexicon, find_rows, unit_rows
from .search import nearest_rows

_FORMAT = "analogies: `: section` lines, and four words on every other line"
_MEASURE = "3CosAdd, question words excluded; questions with an unknown word skipped"
_UNNAMED = "(no section)"


class Question(NamedTuple):
    """An analogy question.

    Attributes:
        section: The section of the file, "(no section)" before the first.
        words: Four words; the last one is the right answer.
    """

    section: str
    words: tuple[str, ...]


def read_questions(path: str | Path) -> list[Question]:
    """Read questions from a file in the format of Google's `questions-words.txt`.

    Lines that start with `#` or `//` are comments. Questions may stand before the first section.

    Args:
        path: The file.

    Returns:
        The questions, in the order of the file.

    Raises:
        UsageError: The file cannot be read, a question has not four words, or there is no question.
    """
    questions, section = [], _UNNAMED
    for number, text in numbered_lines(path, _FORMAT):
        if text.startswith(":"):
            section = text[1:].strip() or _UNNAMED
        elif not text.startswith("//"):
            words = tuple(text.split())
            if len(words) != 4:
                raise UsageError(
                    f"{path}, line {number}: {text[:60]!r} has {len(words)} words, not 4; "
                    f"wanted {_FORMAT}"
                )
            questions.append(Question(section, words))
    if not questions:
        raise UsageError(f"{path}: holds no question; wanted {_FORMAT}")
    return questions


def score(lexicon: Lexicon, path: str | Path, name: str) -> Score:
    """Return the share of questions whose nearest word is the right answer.

    Args:
        lexicon: The words and their vectors.
        path: A file of questions, see `read_questions`.
        name: The name of the score.

    Returns:
        The accuracy over the questions without an unknown word; None if there is none. Its parts
        are `semantic` and `syntactic`, where the file has both, then each section. A section whose
        name begins with `gram` is syntactic, as in Google's file.

    Raises:
        UsageError: See `read_questions`.
    """
    questions = read_questions(path)
    rows_of = {word: find_rows(lexicon, word) for question in questions for word in question.words}
    outcomes = _outcomes(lexicon, [[rows_of[word] for word in each.words] for each in questions])
    counted = count_unknown({word: bool(rows) for word, rows in rows_of.items()})
    line = f"{_MEASURE}; {lexicon.protocol}"

    def tally(title: str, chosen: list[bool | None]) -> Score:
        """Return the score of some outcomes, without parts; its value is None if all are None."""
        used = [outcome for outcome in chosen if outcome is not None]
        value = sum(used) / len(used) if used else None
        note = "" if used else "every question has an unknown word"
        return Score(title, "accuracy", value, len(used), len(chosen) - len(used), line, note)

    sections: dict[str, list[bool | None]] = {}
    kinds: dict[str, list[bool | None]] = {"semantic": [], "syntactic": []}
    for question, outcome in zip(questions, outcomes, strict=True):
        sections.setdefault(question.section, []).append(outcome)
        kind = "syntactic" if question.section.startswith("gram") else "semantic"
        kinds[kind].append(outcome)
    parts = [tally(*item) for item in (*kinds.items(), *sections.items())]
    if not all(kinds.values()):
        parts = parts[len(kinds) :]
    return tally(name, outcomes)._replace(parts=tuple(parts), words=counted)


def _outcomes(lexicon: Lexicon, rows: list[list[tuple[int, ...]]]) -> list[bool | None]:
    """Return whether the answer to each question is right; None for one with an unknown word.

    All spellings of the first three words are excluded from the search. An answer is right in any
    spelling.

    Args:
        lexicon: The words and their vectors.
        rows: The rows of the four words of each question, see `find_rows`.
    """
    known = {number: four for number, four in enumerate(rows) if all(four)}
    firsts = [[spellings[0] for spellings in four] for four in known.values()]
    a, b, c, _ = np.array(firsts, np.int64).reshape(-1, 4).T
    queries_ND = unit_rows(lexicon, b) - unit_rows(lexicon, a) + unit_rows(lexicon, c)
    # Every spelling of a question word is excluded, as gensim does.
    excluded = [[row for spellings in four[:3] for row in spellings] for four in known.values()]
    answers, _ = nearest_rows(lexicon, queries_ND, 1, excluded)
    outcomes: list[bool | None] = [None] * len(rows)
    for (number, four), row in zip(known.items(), answers[:, 0].tolist(), strict=True):
        outcomes[number] = row in four[3]
    return outcomes
