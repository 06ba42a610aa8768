"""Durations as kubectl prints them: `12s`, `4m10s`, `3h5m`, `2d`.

Comes in: two moments. Goes out: text, the same steps as Kubernetes' HumanDuration. Must never read the clock itself.
"""

from datetime import datetime

UNKNOWN = "<unknown>"
INVALID = "<invalid>"


def age(stamp: str | None, now: datetime) -> str:
    """The time since an RFC 3339 stamp."""
    if not stamp:
        return UNKNOWN
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return INVALID
    if moment.tzinfo is None:
        return INVALID
    return human_duration((now - moment).total_seconds())


def human_duration(elapsed_seconds: float) -> str:
    seconds = int(elapsed_seconds)
    if seconds < -1:
        return INVALID
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
