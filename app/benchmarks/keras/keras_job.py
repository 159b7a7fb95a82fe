"""A side of the benchmark `keras`: its model, its layers and its sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

OURS = {
    "device": "device",
    "device_jit": "device, jit",
    "host": "host",
    "host_cache": "host, {hot} % hot",
    "file": "file",
    "file_cache": "file, {hot} % hot",
    "sharded": "sharded",
    "dynamic": "dynamic",
}
PEERS = {"keras": "Keras", "keras_jit": "Keras, jit", "keras_rs": "keras-rs"}
PREFETCH_STEPS = 16  # batches whose rows `prefetch_rows` loads together
_MOMENTS = 2  # of Adam, each as large as the table


class TableSize(NamedTuple):
    """The size of a table.

    Attributes:
        name: The name of its feature.
        rows: Rows of the table.
        columns: Columns of the table.
        ids: Ids of an example; the mean of their rows is its vector.
    """

    name: str
    rows: int
    columns: int
    ids: int = 1

    @property
    def row_bytes(self) -> int:
        """The bytes of a row and its moments."""
        return (1 + _MOMENTS) * self.columns * 4


class Job(NamedTuple):
    """One side of one model.

    Attributes:
        model: The model.
        side: The side, a key of `OURS` or `PEERS`.
        tables: The tables of the model.
        batch: Examples of a step.
        steps: The most steps of a timed block.
        hot: Percent of the rows in the cache of a table (see `hot_rows`).
    """

    model: str
    side: str
    tables: list[TableSize]
    batch: int
    steps: int
    hot: int

    @property
    def title(self) -> str:
        """The name of the side for people."""
        return (OURS | PEERS)[self.side].format(hot=self.hot)

    @property
    def state_bytes(self) -> int:
        """The bytes of all tables and their moments."""
        return sum(table.rows * table.row_bytes for table in self.tables)

    @property
    def cache_bytes(self) -> int:
        """The bytes of all caches, moments included; 0 for a side without caches."""
        if not self.side.endswith("_cache"):
            return 0
        return sum(self.hot_rows(table) * table.row_bytes for table in self.tables)

    def hot_rows(self, table: TableSize) -> int:
        """Return the rows in the cache of a table: its share, or more where that is too few.

        The cache has at least a row for each id of the batches whose rows are loaded together, or
        all rows of the table: rows of fewer batches would be loaded together otherwise, and a DLRM
        then took three times as long for a step.

        Args:
            table: The table.
        """
        most = max(self.hot * table.rows // 100, PREFETCH_STEPS * self.batch * table.ids)
        return min(most, table.rows)


def read_job(values: dict[str, Any]) -> Job:
    """Return a job from JSON values by name, some of which may be others than its fields.

    Args:
        values: The fields of the job.
    """
    job = Job(**{name: values[name] for name in Job._fields})
    return job._replace(tables=[TableSize(*table) for table in job.tables])
