"""The function that a worker of --strategy=parameter_server runs for each call of S steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from ..optimizers.base import Optimizer, update_rows
from ..tables.base import Table
from ..tables.row_reads import unique
from ..tables.served import ServedTables, State
from ..training.gradients import (
    Lookups,
    StepGradients,
    compute_gradients,
    make_lookups,
    phase,
)
from ..training.job import Job
from ..training.step import clip_gradients, split_steps
from ..types import Batch


class LocalRows:
    """A `tables.base.Table` of tensors, of which each write makes a new one.

    Args:
        values_UD: The rows, float32.
        slots: The rows of each slot, float32, by name.
    """

    def __init__(self, values_UD: tf.Tensor, slots: Mapping[str, tf.Tensor] | None = None):
        self.values_UD = values_UD
        self.slots = {name: LocalRows(rows_UD) for name, rows_UD in (slots or {}).items()}

    def locate(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the ids: they are the positions of the rows."""
        return ids_U

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the rows at the given positions; see `Table.gather`."""
        return tf.gather(self.values_UD, ids_U)

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace the rows at the given positions; see `Table.assign`."""
        indices_U1 = ids_U[:, tf.newaxis]
        self.values_UD = tf.tensor_scatter_nd_update(self.values_UD, indices_U1, rows_UD)

    def state(self) -> State:
        """Return the rows, then those of each slot."""
        return [self.values_UD, *(slot.values_UD for slot in self.slots.values())]


class CallRows:
    """The rows of all steps of a call: read once before them, and sent back as changes after them.

    Args:
        slots: The names of the slots of a row, in their order.
        lookups: The lookups of each micro-batch of each step of the call.
        names: The tables that are served.

    Attributes:
        tables: The rows that the call looks up, by name of the table.
        lookups: The given lookups, with positions in `tables` for the ids of served rows.
    """

    def __init__(
        self,
        served: ServedTables,
        slots: Sequence[str],
        lookups: Sequence[Sequence[Lookups]],
        names: Sequence[str],
    ):
        self._served = served
        self._ids = {}
        by_step = [[dict(of_batch) for of_batch in of_step] for of_step in lookups]
        flat = [of_batch for of_step in by_step for of_batch in of_step]
        for name in [name for name in flat[0] if name in names]:
            ids = [of_batch[name].rows_U for of_batch in flat]
            self._ids[name], inverse = unique(tf.concat(ids, axis=0))
            positions = tf.split(inverse, [tf.size(ids_U) for ids_U in ids], num=len(ids))
            for of_batch, positions_U in zip(flat, positions, strict=True):
                of_batch[name] = of_batch[name]._replace(rows_U=positions_U)
        self.lookups: list[list[Lookups]] = [[*of_step] for of_step in by_step]
        self._before = served.gather_state(self._ids)
        self.tables = {
            name: LocalRows(state[0], dict(zip(slots, state[1:], strict=True)))
            for name, state in self._before.items()
        }

    def send_changes(self) -> None:
        """Send the changes of all rows and slots to the servers."""
        changes = {}
        for name, table in self.tables.items():
            pairs = zip(table.state(), self._before[name], strict=True)
            changes[name] = self._ids[name], [after - before for after, before in pairs]
        self._served.add(changes)


class _CallTables:
    """The tables of a call: some of them in the worker, the others on the servers.

    Args:
        local: The tables in the worker, by name.
    """

    def __init__(self, served: ServedTables, local: Mapping[str, LocalRows]):
        self._served, self._local = served, local

    def gather(self, name: str, ids_U: tf.Tensor) -> tf.Tensor:
        """Return the rows (U, D) of the given ids of a table."""
        if name in self._local:
            return self._local[name].gather(ids_U)
        return self._served.gather({name: ids_U})[name]

    def update(
        self, optimizer: Optimizer, gradients: StepGradients, rate: tf.Tensor, number: tf.Tensor
    ) -> None:
        """Update the rows of a step, in the worker and on the servers.

        Args:
            gradients: The result of `compute_gradients` for the step.
            number: The number of the step, from 1.
        """
        with phase("gradient"):
            clipped = clip_gradients(optimizer, gradients.gradients)
        with phase("update"):
            sent = {name: rows for name, rows in clipped.items() if name not in self._local}
            if sent:
                self._served.update(sent, rate)
            for name, rows in clipped.items():
                if name in self._local:
                    table = cast(Table, self._local[name])  # for an update, it is one
                    before_UD = gradients.rows.get(name)
                    update_rows(optimizer.rule, table, *rows, rate, number, before_UD)
            for name, rows in gradients.state.items():
                self._local[name].assign(*rows)


def make_train_function(
    job: Job, served: ServedTables, begun: tf.Variable, seed: int, is_by_call: bool
) -> Any:
    """Return the function that a worker calls; see `training.step.train_function`.

    It returns the loss and the examples of the first step, and the bytes of all messages between
    the worker and the servers. Recurrent states start at zero in each call.

    Args:
        begun: The number of begun calls, int64, to add 1 to.
        is_by_call: Whether rows are read once, before the call, and only their changes are sent
            back, after it. Rows of a streamed loss are read and updated in each step all the same,
            as their ids are not known before.
    """
    model, optimizer = job.model, job.optimizer
    specs = model.tables()
    trained = [name for name, spec in specs.items() if spec.trained]
    anywhere = dict.fromkeys(specs)

    @tf.function(autograph=False)
    def train(data_S: Any, first: tf.Tensor, rate: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Count the call as begun, make its S steps, and return as described above."""
        with tf.device(begun.device):
            begun.assign_add(1)
        # A recurrent state lasts for one call, because another worker may run the next call.
        local = {
            name: LocalRows(tf.zeros((spec.rows, spec.columns)))
            for name, spec in specs.items()
            if not spec.trained
        }
        steps = list(split_steps(data_S, first, seed, job.placed.micro_batches))
        lookups = [[make_lookups(model, batch) for batch in batches] for batches in steps]
        call_rows = None
        if is_by_call:
            with phase("gather"):
                call_rows = CallRows(served, [*optimizer.slots], lookups, trained)
            local |= call_rows.tables
            lookups = call_rows.lookups
        tables = _CallTables(served, local)

        def train_step(
            batches: Sequence[Batch], of_step: Sequence[Lookups], number: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            """Make a step, update the rows here and on the servers; return loss and examples."""
            gradients = compute_gradients(model, tables.gather, batches, anywhere, lookups=of_step)
            tables.update(optimizer, gradients, rate, number)
            return gradients.loss, gradients.examples

        results = [
            train_step(batches, of_step, first + index + 1)
            for index, (batches, of_step) in enumerate(zip(steps, lookups, strict=True))
        ]
        if call_rows is not None:
            with phase("update"):
                call_rows.send_changes()
        return *results[0], served.exchanged_bytes()

    return train
