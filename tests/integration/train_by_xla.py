"""`app.train` with calls of steps that XLA compiles as on a GPU, on a machine without one."""

import runpy

from app.training import runner
from app.training.step import train_function


class ByXla:
    """A train function that XLA must have compiled."""

    def __init__(self, *made, **_):
        self._function = train_function(*made, by_xla=True)

    def __call__(self, *inputs):
        result = self._function(*inputs)
        assert self._function.is_by_xla
        return result

    def __getattr__(self, name):
        return getattr(self._function, name)


if __name__ == "__main__":
    runner.train_function = ByXla
    runpy.run_module("app.train", run_name="__main__")
