"""The collector rests during a pass, and works again after it."""

import gc

import pytest

from controller.gc_pause import collector_paused


def test_it_works_again_after_a_pass_that_broke() -> None:
    with pytest.raises(ZeroDivisionError):
        _divide_by_the_collector()

    assert gc.isenabled()


def _divide_by_the_collector() -> float:
    with collector_paused():
        return 1 / gc.isenabled()


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
