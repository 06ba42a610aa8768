"""Ends the threads of a driver that has a thread for each GPU: one that outlives its test logs into the next one."""

from nodeagent.hardware.driver_thread import ThreadedDriver

SECONDS = 10.0


def ended(driver: ThreadedDriver) -> None:
    """Wait until every call has returned, and its thread ended; fails where one does not."""
    driver.close()
    for lane in [driver._node, *driver._lanes.values()]:
        if lane._thread is not None:
            lane._thread.join(SECONDS)
            assert not lane._thread.is_alive(), f"a call of thread {lane._thread.name} has not returned"
