"""`app.train` with calls of steps that XLA compiles as on a GPU, on a machine without one."""

import runpy

from app.system.xla import CompiledIfPossible
from app.training import runner
from app.training.step import train_function


class ByXla(CompiledIfPossible):
    """A train function that XLA must have compiled."""

    def __init__(self, *made, **_):
        vars(self).update(vars(train_function(*made, by_xla=True)))

    def __call__(self, *inputs):
        result = super().__call__(*inputs)
        assert self.is_by_xla
        return result


if __name__ == "__main__":
    runner.train_function = ByXla
    runpy.run_module("app.train", run_name="__main__")
