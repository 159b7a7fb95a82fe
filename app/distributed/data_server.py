"""Run a server of the tf.data service as a process.

    python -m lexrow.distributed.data_server ROLE ARGUMENT…

It prints its address when it is ready, and ends when its standard input is closed. A worker whose
dispatcher has ended first cannot notice this, as TensorFlow then keeps Python from running. So
`system.processes` kills it as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

# Milliseconds without a heartbeat until a worker counts as gone, and between two heartbeats.
_GONE_MS, _HEARTBEAT_MS = 10_000, 1_000


def main(arguments: Sequence[str]) -> None:
    """Start a server, print its HOST:PORT, serve until stdin is closed, and exit with code 1.

    An error is printed to stderr first. This function does not return.

    Args:
        arguments: The role and its arguments, see `start`.
    """
    try:
        server, address = start(*arguments)
        print(address, flush=True)
        sys.stdin.buffer.read()
        del server
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        # Without this exit, the server's destructor waits an hour for a dispatcher that is gone.
        os._exit(1)


def start(role: str, *arguments: str) -> tuple[Any, str]:
    """Start a server of the tf.data service, which runs as long as a reference to it exists.

    Args:
        role: `data_dispatcher` or `data_worker`; any other text counts as the latter.
        *arguments: For a dispatcher, its port ("0" for any free one) and the folder of its journal;
            for a worker, the HOST:PORT of the dispatcher. A worker chooses a free port.

    Returns:
        The server and its HOST:PORT.
    """
    # The servers build graphs that have operations of tensorflow_text.
    import tensorflow_text  # noqa: F401
    from tensorflow.data.experimental import service

    if role == "data_dispatcher":
        port, folder = arguments
        dispatcher = service.DispatcherConfig(
            port=int(port),
            work_dir=folder,  # it continues from the journal there, if there is one
            fault_tolerant_mode=True,
            worker_timeout_ms=_GONE_MS,
        )
        server = service.DispatchServer(dispatcher)
        address = server.target
    else:
        worker = service.WorkerConfig(
            dispatcher_address=arguments[0],
            worker_address="127.0.0.1:%port%",
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        server = service.WorkerServer(worker)
        address = server._address
    return server, f"127.0.0.1:{address.rpartition(':')[2]}"


if __name__ == "__main__":
    main(sys.argv[1:])
