"""The queue of waiting pods: order, back-off, wake-ups."""

from controller.model.views import PodView
from sandbox.scheduler.records import Failure, PodRecord
from sandbox.scheduler.waiting import FLUSH_SECONDS, BackOff, Item, Waiting

NO_ROOM = Failure(message="no room", plugins=frozenset({"NodeResourcesFit"}))


def record(name: str, *, priority: int = 0, created: int = 0, cpu: int = 1, uid: str = "") -> PodRecord:
    view = PodView(
        namespace="default", name=name, uid=uid or name, priority=priority, created=created, requests=(("cpu", cpu),)
    )
    return PodRecord(view=view)


def names(waiting: Waiting, now: float = 0.0) -> list[str]:
    """Take everything that may be tried now."""
    taken = []
    while (item := waiting.pop(now)) is not None:
        taken.append(item.record.view.name)
    return taken


def take(waiting: Waiting, now: float = 0.0) -> Item:
    item = waiting.pop(now)
    assert item is not None
    return item


def test_priority_then_creation_then_name() -> None:
    waiting = Waiting(BackOff())
    for one in (
        record("c", created=2),
        record("b", created=1),
        record("a", created=1),
        record("z", priority=5, created=9),
    ):
        waiting.put(one)
    assert names(waiting) == ["z", "a", "b", "c"]
    assert len(waiting.items) == 4


def test_a_failed_pod_waits_until_something_helps() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a"))
    waiting.fail(take(waiting), NO_ROOM, now=0.0)
    assert names(waiting, 100.0) == []
    waiting.wake(lambda _, failure: failure is not NO_ROOM)
    assert names(waiting, 100.0) == []
    waiting.wake(lambda _, failure: failure is NO_ROOM)
    assert names(waiting, 100.0) == ["a"]


def test_back_off_doubles_from_one_to_ten_seconds() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a"))
    now = 0.0
    for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        waiting.fail(take(waiting, now), NO_ROOM, now)
        waiting.wake(lambda *_: True)
        assert waiting.pop(now + pause - 0.01) is None
        now += pause
    assert names(waiting, now) == ["a"]


def test_a_changed_pod_is_tried_at_once() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a", cpu=4))
    waiting.fail(take(waiting), NO_ROOM, 0.0)
    waiting.put(record("a", cpu=4))
    assert names(waiting) == []
    waiting.put(record("a", cpu=2))
    assert names(waiting) == ["a"]


def test_a_forgotten_pod_is_not_tried() -> None:
    waiting = Waiting(BackOff())
    for name in ("a", "b", "c"):
        waiting.put(record(name))
    waiting.forget("a")
    item = take(waiting)
    waiting.forget("b")
    waiting.fail(item, NO_ROOM, 0.0)  # gone while it was tried
    waiting.fail(take(waiting), NO_ROOM, 0.0)
    waiting.wake(lambda *_: True)  # backing off …
    waiting.forget("c")
    assert names(waiting, 10.0) == []
    assert len(waiting.items) == 0


def test_a_successor_of_the_same_name_starts_again() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a", uid="one"))
    waiting.fail(take(waiting), NO_ROOM, 0.0)
    waiting.forget("one")
    waiting.put(record("a", uid="two"))
    assert take(waiting).attempts == 0


def test_misjudged_pods_are_tried_after_five_minutes() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a"))
    waiting.fail(take(waiting), NO_ROOM, 7.0)
    assert names(waiting, 6.9 + FLUSH_SECONDS) == []
    assert names(waiting, 7.0 + FLUSH_SECONDS) == ["a"]


def test_a_pod_under_way_is_not_tried_twice() -> None:
    waiting = Waiting(BackOff())
    waiting.put(record("a", cpu=4))
    take(waiting)
    waiting.put(record("a", cpu=2))
    waiting.wake(lambda *_: True)
    assert names(waiting, 100.0) == []
