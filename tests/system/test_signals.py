from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from app.system import signals
from app.system.signals import asked_to_stop

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both
def test_a_signal_is_a_wish(number):
    before = signal.getsignal(number)
    with asked_to_stop() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
    assert signal.getsignal(number) == before


def test_a_later_ctrl_c_ends_at_once(monkeypatch):
    monkeypatch.setattr(signals, "_SAME_WISH", 0.05)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), asked_to_stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_two_presses_at_once_are_one_wish(capfd):
    with asked_to_stop("saving") as stop:
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert stop.is_set()
    assert capfd.readouterr().err.count("saving") == 1


def test_another_thread_leaves_signals_alone():
    seen = []

    def run():
        with asked_to_stop() as stop:
            seen.append((stop.is_set(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(False, signal.getsignal(signal.SIGINT))]
