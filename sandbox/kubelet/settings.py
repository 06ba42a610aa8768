"""Holds how long each step of a kubelet takes.

A frozen value that the parts of the kubelet read. The defaults are what kubelet 1.36 was measured to do, but for
`stop_seconds` and `start_seconds`, which belong to containers. Nothing here reads an environment or a file.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Durations in seconds; tests shorten them."""

    registration_after_seconds: float = 0.3
    """From serving pod-resources to a usable kubelet.sock."""
    pods_after_seconds: float = 0.6
    """From a usable kubelet.sock to the first pod; pod-resources answers an empty List until then."""
    dial_timeout_seconds: float = 10.0
    endpoint_grace_seconds: float = 300.0
    """A stopped plugin's devices count as unhealthy for this long, then the resource is 0/0."""
    exit_notice_seconds: float = 1.0
    """From the end of a container that was not stopped to the kubelet seeing it."""
    start_seconds: float = 0.2
    """From the start call to a running container."""
    stop_seconds: float = 0.5
    """From the stop signal to the end of the process."""
    force_stop_seconds: float = 2.0
    """The shortest grace of any stop, and that of a container whose pod vanished from the API (force deletion)."""
    start_retry_seconds: tuple[float, ...] = (1.0, 12.0, 27.0)
    """Pauses after a failed start, the last one repeated."""
    restart_backoff_seconds: tuple[float, ...] = (0.5, 10.0, 20.0, 40.0)
    """Pauses before a container that ended is started again, the last one repeated."""
    status_repair_seconds: float = 2.5
    """Until the kubelet writes its own view over a phase that another client patched."""
    status_report_seconds: float = 300.0
    """A node's status in which nothing has changed is written so seldom."""
    lease_renew_seconds: float = 10.0
    rate_per_second: float = 100.0
    rate_burst: int = 10
    """Token bucket of pod-resources, shared by all methods and clients."""
