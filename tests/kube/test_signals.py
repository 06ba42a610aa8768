"""A signal ends a process whatever its main thread holds."""

import os
import signal
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from kube.signals import SIGNALS, call_when_ended
from tests.waiting import SECONDS


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_while_the_main_thread_holds_a_lock_that_ending_needs(number: signal.Signals) -> None:
    lock, ended = threading.Lock(), threading.Event()

    def stop() -> None:
        if lock.acquire(timeout=SECONDS):
            ended.set()
            lock.release()

    call_when_ended(stop)
    with lock:
        os.kill(os.getpid(), number)
    assert ended.wait(SECONDS)


def test_each_signal_counts() -> None:
    calls: SimpleQueue[str] = SimpleQueue()
    call_when_ended(lambda: calls.put(threading.current_thread().name))
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls.get(timeout=SECONDS) == "signals"
