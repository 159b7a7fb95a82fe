"""Rows on parameter servers are changed as those at home, by whoever, and there."""

from __future__ import annotations

import json

import pytest

from tests.integration.commands import done
from tests.tables import two_servers


@pytest.mark.slow
def test_servers_change_rows_as_a_table_at_home_and_one_after_the_other(tmp_path):
    found = json.loads(done(tmp_path, "tests.tables.two_servers").out)
    for name in two_servers.OPTIMIZERS:
        assert found[name] < 1e-6, found
    calls = two_servers.CALLS * two_servers.STEPS
    assert found["raised"] == [calls], "a change was lost between two workers"
    assert found["updates"] == [calls, calls]
    assert found["elsewhere"] == [], "rows travel that could be changed where they are"
