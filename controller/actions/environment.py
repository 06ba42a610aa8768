"""What every action of the controller works with: the API, the state, the metrics, the clocks, and whether to write."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from kubernetes.client import ApiClient

from controller.actions.metrics import Metrics
from controller.cache.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    api: ApiClient
    state: State
    metrics: Metrics
    leading: Callable[[], bool]
    """Checked before each write: False while another controller leads, or this one ends."""
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """For times that others read; durations are measured by `clock`."""
