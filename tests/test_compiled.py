"""Where several processes begin in a fresh clone, one compiles the tests."""

import threading
from pathlib import Path

from tests.compiled import first_alone
from tests.waiting import SECONDS


def test_others_wait_for_the_first_and_not_for_each_other(tmp_path: Path) -> None:
    together = threading.Barrier(2)
    entered = threading.Event()

    def come() -> None:
        with first_alone(tmp_path):
            entered.set()
            together.wait(SECONDS)

    others = [threading.Thread(target=come) for _ in range(2)]
    with first_alone(tmp_path):
        for one in others:
            one.start()
        assert not entered.wait(0.1)
    for one in others:
        one.join(SECONDS)
        assert not one.is_alive()
    assert not together.broken


def test_one_that_comes_later_is_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with first_alone(tmp_path):
            pass
