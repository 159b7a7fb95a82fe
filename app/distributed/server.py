"""A server of TensorFlow as a process: python -m app.distributed.server ROLE ARGUMENT…

It says its address on stdout when it is ready, and ends when its stdin does. A worker that waits
for a dispatcher that went first does not see that, as TensorFlow then keeps Python from running; so
`system.processes` has it killed besides.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

# Seconds until a worker that is gone is told from one that is busy, and between signs of life.
_GONE_MS, _SIGN_OF_LIFE_MS = 10_000, 1_000


def main(arguments: Sequence[str]) -> None:
    """Serves until stdin ends."""
    try:
        server, address = start(*arguments)
        print(address, flush=True)
        sys.stdin.buffer.read()
        del server
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)  # a server that is destroyed waits an hour for a dispatcher that is gone


def start(role: str, *arguments: str) -> tuple[Any, str]:
    """The server, which lives as long as it is kept, and its HOST:PORT.

    role and arguments: "data_dispatcher" PORT FOLDER, where 0 is any free port and the folder is
    where it notes how far it is; or "data_worker" ADDRESS, of the dispatcher.
    """
    return {"data_dispatcher": _data_dispatcher, "data_worker": _data_worker}[role](*arguments)


def _data_dispatcher(port: str, folder: str) -> tuple[Any, str]:
    # It builds the graphs of the workers too, to know how their work is divided.
    import tensorflow_text  # noqa: F401
    from tensorflow.data.experimental import service

    config = service.DispatcherConfig(
        port=int(port),
        work_dir=folder,
        fault_tolerant_mode=True,
        worker_timeout_ms=_GONE_MS,
    )
    server = service.DispatchServer(config)
    return server, f"127.0.0.1:{server.target.rpartition(':')[2]}"


def _data_worker(dispatcher: str) -> tuple[Any, str]:
    import tensorflow_text  # noqa: F401  whose operations are in the graphs
    from tensorflow.data.experimental import service

    config = service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address="127.0.0.1:%port%",
        heartbeat_interval_ms=_SIGN_OF_LIFE_MS,
    )
    server = service.WorkerServer(config)
    return server, f"127.0.0.1:{server._address.rpartition(':')[2]}"


if __name__ == "__main__":
    main(sys.argv[1:])
