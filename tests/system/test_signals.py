import os
import signal
import threading
import time

import pytest

from app.system import signals
from app.system.signals import asked_to_stop

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def handlers():
    """Puts back the handlers of before the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_a_signal_the_handlers_are_put_back(handlers):
    with asked_to_stop() as stop:
        assert not stop.is_set() and signal.getsignal(signal.SIGINT) != handlers[signal.SIGINT]
    assert {number: signal.getsignal(number) for number in handlers} == handlers


@both
def test_a_signal_is_a_wish(number):
    with asked_to_stop() as stop:
        os.kill(os.getpid(), number)
        assert stop.is_set()
        os.kill(os.getpid(), number)  # a second later it would end the process
    os.kill(os.getpid(), number)  # also after the block


@pytest.mark.parametrize("is_within", [True, False])
def test_a_later_ctrl_c_ends_at_once(monkeypatch, handlers, is_within):
    monkeypatch.setattr(signals, "_SAME_WISH", 0.05)

    def press_later():
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        with asked_to_stop() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.is_set()
            if is_within:
                press_later()
        press_later()
    assert signal.getsignal(signal.SIGINT) == handlers[signal.SIGINT]


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


def test_an_interrupt_waits_for_the_end_of_the_block(handlers):
    reached = []
    with pytest.raises(KeyboardInterrupt), signals.interrupted_after():
        signal.raise_signal(signal.SIGINT)
        reached.append(1)
    assert reached
