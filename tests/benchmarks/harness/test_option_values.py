from __future__ import annotations

import pytest

from app.benchmarks.harness import option_values
from app.errors import UsageError


def test_names_are_chosen_each_once():
    assert option_values.chosen("peers", " b, a,,b ", ["a", "b"], "peer") == ["b", "a"]
    assert option_values.chosen("peers", "", ["a"], "peer") == []


def test_numbers_are_in_order_each_once():
    assert option_values.numbers(" 20,3 ,20") == [3, 20] and option_values.numbers("") == []


def test_an_unknown_name_is_one_line():
    with pytest.raises(UsageError, match=r"^--peers=a,c: c is no peer; choose from a, b$"):
        option_values.chosen("peers", "a,c", ["a", "b"], "peer")
