"""The rule that spreads the rows of a table over shards."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class ShardingPlan:
    """The rule that gives each of V rows to one of several shards.

    The methods take and return tensors or arrays, whichever they are given.

    Attributes:
        rule: "mod" gives row i to shard i % shards, which balances look-ups where ids are by
            falling frequency. "block" gives each shard consecutive rows.
    """

    rows: int
    shards: int
    rule: str = "mod"

    def locate(self, ids: Any) -> tuple[Any, Any]:
        """Return the shard of each id, and its row in that shard."""
        if self.rule == "mod":
            return ids % self.shards, ids // self.shards
        return ids // self._block, ids % self._block

    def ids(self, shard: int, rows: Any) -> Any:
        """Return the ids of rows of a shard."""
        if self.rule == "mod":
            return rows * self.shards + shard
        return rows + shard * self._block

    def size(self, shard: int) -> int:
        """Return the number of rows of a shard."""
        if self.rule == "mod":
            return len(range(shard, self.rows, self.shards))
        return len(range(self.rows)[shard * self._block :][: self._block])

    @property
    def _block(self) -> int:
        """The rows of each shard by the rule "block"; the last shards may have fewer or none."""
        return -(-self.rows // self.shards)
