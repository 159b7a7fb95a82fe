"""Sizes, a batch and readers of findings for the tests of audits."""

from __future__ import annotations

import numpy as np

ROWS, COLUMNS, LENGTH = 60, 4, 5
TABLE = ROWS * COLUMNS * 4  # bytes
# A row-wise slot counts as well.
LEAST = ROWS * 4
BATCH = np.zeros((3, LENGTH), np.int32), np.zeros((3, 1), np.float32)


def causes(findings):
    return {finding.cause: finding.instead for finding in findings}


def tables(findings):
    """How many tables' bytes are read and written."""
    return findings.total / TABLE
