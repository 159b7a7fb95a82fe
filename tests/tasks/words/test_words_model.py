from __future__ import annotations

import numpy as np
import pytest

from app.checkpoints.workdir import read_settings
from app.settings.checks import make_config
from app.tasks.words.words_job import make_model


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"contexts": "drawn"}, True),
        ({"loss": "sampled_softmax", "samples": 8}, False),
        ({"loss": "hierarchical_softmax"}, False),
        ({"loss": "class_softmax"}, True),
        ({"loss": "softmax"}, True),
        ({"loss": "adaptive_softmax"}, True),
    ],
)
def test_only_a_loss_that_lists_pairs_has_drawn_contexts_by_default(values, expected):
    config = make_config({"dim": 4, **values})
    counts_V = np.arange(100, 0, -1)
    assert make_model(config, counts_V).draws_contexts == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("--dim=4\n", "drawn"), ("--task=words\n", "drawn"), ("--contexts=auto\n", "auto")],
)
def test_a_workdir_that_is_older_than_the_flag_draws_contexts(tmp_path, flags, expected):
    (tmp_path / "flags.cfg").write_text(flags)
    assert read_settings(tmp_path)["contexts"] == expected
    assert read_settings(tmp_path / "new") == {}
