"""Run a command on two logical CPU devices: python -m tests.integration.on_two_devices COMMAND…"""

import runpy
import sys

import tensorflow as tf


def main() -> None:
    """Run the module that is named, with the other arguments."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
