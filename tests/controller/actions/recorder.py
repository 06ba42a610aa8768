"""A recorder of Events that keeps what would be written."""

from kube.events import EventType, ObjectReference


class Recorder:
    """Keeps what would be written."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, str, str, str]] = []
        self.series: list[str | None] = []

    def emit(
        self, about: ObjectReference, event_type: EventType, reason: str, message: str, *, series: str | None = None
    ) -> None:
        self.emitted.append((f"{about.kind}/{about.name}", event_type, reason, message))
        self.series.append(series)

    def take(self) -> list[tuple[str, str, str, str]]:
        taken, self.emitted = self.emitted, []
        return taken
