"""A text classifier and a text vectorizer with the interface of scikit-learn.

    from lexrow.sklearn import TextClassifier, TextVectorizer

Both take lists of texts. A fitted estimator has its vectors in memory, so it can be pickled.
"""

from __future__ import annotations

from .text_estimators import TextClassifier, TextVectorizer

__all__ = ["TextClassifier", "TextVectorizer"]
