from __future__ import annotations

import os
import signal

import pytest

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


def test_the_second_ctrl_c_ends_at_once():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), asked_to_stop():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
