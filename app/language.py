"""Language models in Python: train them, load them, ask them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from .trained import (
    Result,
    Run,
    check_count,
    check_limit,
    column_of,
    export,
    load_run,
    start_tensorflow,
    takes_settings,
    train_on_text,
)


@takes_settings("language_model")
def train_language_model(
    corpus: Any,
    *,
    workdir: str | os.PathLike[str] | None = None,
    verbose: bool | None = None,
    **settings: Any,
) -> Language:
    """Train a language model.

    Args:
        corpus: A path or glob of text files, or an iterable of texts or of lists of tokens, which
            is read once, before training. If it raises an error, the workdir stays as it is.
        workdir: The folder of the run, where a run that was stopped goes on. None: a temporary one.
        verbose: None shows a bar on a terminal and in a notebook, and nothing elsewhere; True
            prints lines there; False shows nothing.
        settings: The flags of `lexrow train --task=language_model`, by name; and `preset`, the
            name of an example of settings, which others beside it change.

    Raises:
        ValueError: A setting is not possible, or the corpus cannot be used.
        RunError: Training failed.
        KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.

    Example:
        >>> model = train_language_model(["a b c"] * 500, dim=8, epochs=1, heldout_share=0.0)
        >>> len(model)
        5
    """
    return load_run(Language, train_on_text("language_model", corpus, workdir, settings, verbose))


class Language(Result):
    """A trained language model.

    A text is predicted from its beginning: its tokens, and `<eos>` at its end. A word without an id
    of its own is `<unk>`.

    Attributes:
        tokens: The V words, with `<unk>` and `<eos>`, most frequent first.
    """

    def __init__(self, run: Run):
        config = run.config_of("language_model")
        start_tensorflow()
        from .tasks.language_model.trained_language import TrainedLanguage

        self._run, self._model = run, TrainedLanguage(config, run.workdir)
        self.tokens = self._model.tokens

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<Language: {len(self):,} words>"

    def perplexity(self, texts: Iterable[str]) -> float:
        """Return e to the mean of -log P over all tokens of texts, `<eos>` of each included.

        Example:
            >>> model.perplexity(["a b c"]) < 5
            True
        """
        given = [texts] if isinstance(texts, str) else column_of(texts, "texts")
        scored = [self._model.score(text) for text in given]
        count = sum(tokens for _, tokens in scored)
        if not count:
            raise ValueError("texts has no text; give at least one")
        return math.exp(-sum(log_p for log_p, _ in scored) / count)

    def log_probability(self, text: str) -> float:
        """Return the natural logarithm of the probability of a text, `<eos>` at its end included.

        Example:
            >>> model.log_probability("a b c") < 0
            True
        """
        return self._model.score(text)[0]

    def next_words(self, prompt: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the k most probable words after a text, each with its probability, best first.

        Example:
            >>> model.next_words("a", k=1)[0][0]
            'b'
        """
        check_count("k", k)
        log_p_V = self._model.log_probabilities(self._model.read(self._model.encode(prompt))[0])
        best_K = np.argsort(-log_p_V, kind="stable")[:k]
        return [(self.tokens[word], math.exp(log_p_V[word])) for word in best_K]

    def generate(
        self,
        prompt: str = "",
        tokens: int = 20,
        temperature: float = 1.0,
        top_k: int = 0,
        seed: int | None = None,
    ) -> str:
        """Return words that follow a text, drawn one after the other, until `<eos>`.

        `<unk>` is not drawn.

        Args:
            prompt: The text; it is not part of the result.
            tokens: The most words to draw.
            temperature: Logits are divided by it; 0 takes the most probable word.
            top_k: Draw among this many words, the most probable; 0 among all.
            seed: Of the draws; None for any.

        Raises:
            ValueError: A number is out of range.

        Example:
            >>> model.generate("a", tokens=2, temperature=0)
            'b c'
        """
        check_count("tokens", tokens)
        check_limit("top_k", top_k)
        if not temperature >= 0:
            raise ValueError(f"temperature={temperature}: give 0 or more")
        generator, model = np.random.default_rng(seed), self._model
        hidden_1H, state_1S = model.read(model.encode(prompt))
        words: list[str] = []
        while len(words) < tokens:
            log_p_V = model.log_probabilities(hidden_1H)
            log_p_V[model.unknown] = -np.inf
            word = _draw(log_p_V, temperature, top_k, generator)
            if word == model.end:
                break
            words.append(self.tokens[word])
            hidden_1H, state_1S = model.read([word], state_1S)
        return " ".join(words)

    def export(
        self, path: str | os.PathLike[str], format: str = "saved_model", **options: Any
    ) -> None:
        """Write the model to a folder, or the vectors of its words to a file.

        Args:
            format: `saved_model` for the whole model: its signature `predict` takes `tokens`,
                (B, T) strings from the beginning of each text, "" after the last one, and returns
                `words` (V,) and the `log_probabilities` (B, V) of the next word. It needs
                TensorFlow only. The others are those of `Words.export`.
            options: Of `lexrow export` for the format.

        Raises:
            ValueError: There is no such format, or a word cannot be written in it.
            RunError: The file cannot be written.

        Example:
            >>> model.export("model")
        """
        export(path, format, self._run, options)


def _draw(
    log_p_V: np.ndarray, temperature: float, top_k: int, generator: np.random.Generator
) -> int:
    """Return a word that is drawn by its logarithm of a probability; see `generate`."""
    if not temperature:
        return int(log_p_V.argmax())
    if 0 < top_k < len(log_p_V):
        log_p_V = np.where(log_p_V < np.partition(log_p_V, -top_k)[-top_k], -np.inf, log_p_V)
    # The largest sum with a Gumbel number is a draw from the softmax (Gumbel 1954).
    return int((log_p_V / temperature + generator.gumbel(size=len(log_p_V))).argmax())
