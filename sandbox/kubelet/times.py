"""Times in objects of the API, which people see, as seconds since the epoch."""

from datetime import UTC, datetime

from kube.timestamps import api_time


def timestamp(epoch_seconds: float) -> str:
    """RFC 3339 with whole seconds, the only form that Kubernetes objects carry."""
    return api_time(datetime.fromtimestamp(int(epoch_seconds), tz=UTC))


def epoch_seconds(text: str) -> float | None:
    """None for an absent or unreadable timestamp."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
