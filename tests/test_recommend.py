import io

import pytest

from app import recommend
from app.errors import UsageError
from app.system.files import LONGEST_LINE


def test_users_are_lines():
    file = io.BytesIO(b"\xef\xbb\xbfone\r\n\n  \ntwo words\nthr\xe9e")
    assert list(recommend._lines(file)) == ["one", "two words", "thr\N{REPLACEMENT CHARACTER}e"]


def test_a_line_that_is_too_long_is_refused():
    lines = recommend._lines(io.BytesIO(b"one\n" + bytes(LONGEST_LINE + 1)))
    assert next(lines) == "one"
    with pytest.raises(UsageError, match="^standard input, line 2: longer than 1,048,576 bytes; "):
        next(lines)
