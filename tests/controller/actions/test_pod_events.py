"""When a waiting pod has an Event, with a clock that only the test moves."""

import pytest

from controller.actions.pod_events import SETTLE_SECONDS, PodEvents, Statement
from controller.model.reasons import UnplacedReason
from kube.event_backlog import EventBacklog, EventContent
from kube.events import EventType, ObjectReference
from tests.clock import Clock


class EventsDesk:
    """Passes at given times; what was emitted, with its time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.now = 0.0
        self.emitted: list[tuple[float, str, str]] = []
        self.words: list[EventContent] = []
        self.gone: set[str] = set()
        self.events = PodEvents(self, clock=self.clock, waits=lambda key, uid: uid not in self.gone)

    def emit(
        self, about: ObjectReference, event_type: EventType, reason: str, message: str, *, series: str | None = None
    ) -> None:
        self.emitted.append((self.clock.now, reason, message))
        series = message if series is None else series
        self.words.append(EventContent(about=about, type=event_type, reason=reason, message=message, series=series))

    def at(self, now: float, *statements: Statement, ready: tuple[str, ...] = ()) -> None:
        self.clock.now = now
        self.events.report(statements, ready=ready)

    def wait(self, until: float) -> None:
        """The loop's turns, one a second."""
        while self.clock.now < until:
            self.clock.now += 1.0
            self.events.follow()


@pytest.fixture
def desk() -> EventsDesk:
    return EventsDesk()


def statement(reason: UnplacedReason, message: str = "m", *, name: str = "a", channel: str = "") -> Statement:
    return Statement(
        uid=f"uid-{name}",
        key=("default", name),
        reason=reason,
        message=message,
        settle_seconds=SETTLE_SECONDS if reason.in_flight else 0.0,
        channel=channel,
    )


FULL, RELEASE, CHANGE = UnplacedReason.NO_CAPACITY, UnplacedReason.WAITS_FOR_RELEASE, UnplacedReason.CHANGE_UNDER_WAY
OFF, AGENT = UnplacedReason.MIG_MODE_DISABLED, UnplacedReason.AWAITING_AGENT


@pytest.mark.parametrize(
    ("passes", "until", "emitted"),
    [
        pytest.param([(0, FULL)], 1300, [(0, "NoCapacity"), (600, "NoCapacity"), (1200, "NoCapacity")], id="unchanged"),
        pytest.param(
            [(0, FULL), (1, CHANGE), (2, RELEASE)],
            60,
            [(0, "NoCapacity"), (2, "WaitsForRelease")],
            id="a short change of GPUs between two reasons",
        ),
        pytest.param(
            [(0, OFF), (1, CHANGE), (2, OFF)], 60, [(0, "MIGModeDisabled")], id="the same reason after a short change"
        ),
        pytest.param([(0, CHANGE)], 60, [(30, "ChangeUnderWay")], id="a long change of GPUs"),
        pytest.param([(0, AGENT), (3, FULL)], 60, [(3, "NoCapacity")], id="agents that report soon"),
        pytest.param(
            [(0, FULL), (1, RELEASE), (2, FULL), (3, RELEASE), (4, FULL)],
            60,
            [(0, "NoCapacity"), (1, "WaitsForRelease"), (34, "NoCapacity")],
            id="reasons that alternate",
        ),
        pytest.param([(0, FULL), (20, FULL), (40, FULL)], 60, [(0, "NoCapacity")], id="passes without news"),
    ],
)
def test_when_a_pod_has_an_event(
    desk: EventsDesk, passes: list[tuple[float, UnplacedReason]], until: float, emitted: list[tuple[float, str]]
) -> None:
    for at, reason in passes:
        desk.wait(at)
        desk.at(at, statement(reason))
    desk.wait(until)

    assert [(at, reason) for at, reason, _ in desk.emitted] == emitted


def test_a_repeat_has_the_newest_message_and_is_the_same_event(desk: EventsDesk) -> None:
    desk.at(0, statement(FULL, "7 GPUs are full"))
    desk.at(5, statement(FULL, "8 GPUs are full"))
    desk.wait(601)

    assert [message for _, _, message in desk.emitted] == ["7 GPUs are full", "8 GPUs are full"]
    backlog = EventBacklog(quiet_seconds=0.0, size=10, remembered=40)
    for words in desk.words:
        backlog.add(words, 0.0)
    assert backlog.take(0.0).emitted == 2
    assert backlog.due_in(0.0) is None


def test_a_pod_that_no_longer_waits_has_no_further_event(desk: EventsDesk) -> None:
    desk.at(0, statement(FULL), statement(FULL, name="b"))
    desk.gone.add("uid-a")
    desk.wait(700)

    assert [at for at, *_ in desk.emitted] == [0, 0, 600]


def test_a_pod_that_can_start_gets_no_event_until_it_waits_again(desk: EventsDesk) -> None:
    desk.at(0, statement(FULL))
    desk.at(1, ready=("uid-a",))
    desk.wait(700)
    assert len(desk.emitted) == 1
    desk.at(700, statement(FULL))
    assert len(desk.emitted) == 2


def test_a_forgotten_pod_begins_again(desk: EventsDesk) -> None:
    desk.at(0, statement(FULL))
    desk.at(1)
    desk.at(2, statement(FULL))
    assert len(desk.emitted) == 2


def test_channels_do_not_silence_each_other(desk: EventsDesk) -> None:
    for at in (0, 1):
        desk.at(at, statement(OFF, channel="other"), statement(FULL))
    assert [reason for _, reason, _ in desk.emitted] == ["MIGModeDisabled", "NoCapacity"]
