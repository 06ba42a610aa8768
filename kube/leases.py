"""Renews Leases: leader election among several processes, and the heartbeat of one.

Time is this process's monotonic clock only: another holder counts as alive for its lease's duration since *we* last saw
it change, so clocks need not agree. Any failed request is a failed renewal, whatever it raised. A leader that cannot
renew stops leading before another process may start; writes are fenced by resourceVersion all the same.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from kube import apply, errors
from kube.timestamps import micro_time
from kube.transport import Timeouts

log = logging.getLogger(__name__)
SHORTEST_TIMEOUT_SECONDS = 0.1
RETRY_SECONDS = 2.0
"""After a heartbeat that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    lease_seconds: float  # others wait this long for a holder that went silent
    renew_seconds: float  # the holder stops leading this long after its last good renewal
    retry_seconds: float


def lease_path(namespace: str, name: str = "") -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


def _lease(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class Elector:
    """Leads while it holds the lease. `on_started` and `on_stopped` come from its thread, in turns."""

    def __init__(
        self,
        api: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        on_started: Callable[[], None],
        on_stopped: Callable[[], None],
        timing: LeaseTiming,
    ) -> None:
        self.identity = identity
        self._api, self._namespace, self._name = api, namespace, name
        self._on_started, self._on_stopped = on_started, on_stopped
        self._timing = timing
        self._quit = threading.Event()
        self._leading = False
        self._renewed = 0.0  # start of the last good renewal
        self._seen: tuple[object, object] | None = None  # holder and renewTime of the last read …
        self._seen_at = 0.0  # … and when they last changed
        self._thread = threading.Thread(target=self.run, daemon=True, name=f"elector {name}")

    @property
    def leading(self) -> bool:
        """True only while no other process can lead; check before every write."""
        return self._leading and time.monotonic() - self._renewed < self._timing.renew_seconds

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop leading and give the lease back, so that the next leader need not wait it out."""
        self._quit.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._timing.lease_seconds)

    def run(self) -> None:
        while not self._quit.is_set():
            started = time.monotonic()
            try:
                held = self._attempt(started)
            except Exception as error:  # noqa: BLE001 - any exception is a failed renewal
                log.warning("lease %s: %r", self._name, error)
                held = None
            if held:
                self._renewed = started
                self._lead()
            elif held is False or not self.leading:
                self._follow()
            self._quit.wait(self._pause_seconds())
        if self._leading:
            self._follow()
            self._release()

    def _pause_seconds(self) -> float:
        left = self._renewed + self._timing.renew_seconds - time.monotonic()
        return min(self._timing.retry_seconds, max(left, 0.0)) if self._leading else self._timing.retry_seconds

    def _timeouts(self) -> Timeouts:
        """A leader's request (connect, then read) ends when its lead does, so that it notices in time."""
        seconds = self._timing.renew_seconds / 3
        if self._leading:
            left = self._renewed + self._timing.renew_seconds - time.monotonic()
            seconds = min(seconds, max(left / 2, SHORTEST_TIMEOUT_SECONDS))
        return Timeouts(connect_seconds=seconds, read_seconds=seconds)

    def _lead(self) -> None:
        if not self._leading:
            log.info("acquired lease %s as %s", self._name, self.identity)
            self._leading = True
            self._on_started()

    def _follow(self) -> None:
        if self._leading:
            log.warning("lost lease %s as %s", self._name, self.identity)
            self._leading = False
            self._on_stopped()

    def _attempt(self, now: float) -> bool:
        """True: renewed. False: another process holds it. Anything else is raised."""
        path = lease_path(self._namespace, self._name)
        try:
            lease = apply.get(self._api, path, timeouts=self._timeouts())
        except errors.NotFound:
            body = _lease({"name": self._name, "namespace": self._namespace}, self._held_spec({}))
            apply.create(self._api, lease_path(self._namespace), body, timeouts=self._timeouts())
            return True
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if (holder, spec.get("renewTime")) != self._seen:
            self._seen, self._seen_at = (holder, spec.get("renewTime")), now
        alive_seconds = spec.get("leaseDurationSeconds") or self._timing.lease_seconds
        if holder and holder != self.identity and now < self._seen_at + alive_seconds:
            return False
        lease["spec"] = self._held_spec(spec)
        # The resourceVersion that was read goes with it: Conflict means that another process was faster.
        apply.replace(self._api, path, lease, timeouts=self._timeouts())
        return True

    def _held_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        now = micro_time()
        mine = spec.get("holderIdentity") == self.identity
        return {
            **spec,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(round(self._timing.lease_seconds), 1),
            "renewTime": now,
            "acquireTime": spec.get("acquireTime", now) if mine else now,
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if mine or not spec else 1),
        }

    def _release(self) -> None:
        path = lease_path(self._namespace, self._name)
        with contextlib.suppress(errors.ApiError):  # then the others wait the lease out
            lease = apply.get(self._api, path, timeouts=self._timeouts())
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time()}
                apply.replace(self._api, path, lease, timeouts=self._timeouts())


class Heartbeat:
    """Renews one lease that has no other holder; each reader judges its age by its own clock."""

    def __init__(
        self,
        api: ApiClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        manager: str,
        lease_seconds: float = 40.0,
        renew_seconds: float = 10.0,
        before: Callable[[], None] = lambda: None,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`before` is called before each beat, and raises where there must be none; `annotations` are the Lease's."""
        self._before, self._taken_at = before, time.monotonic()
        self._annotations = annotations
        self._api, self._path, self._manager = api, lease_path(namespace, name), manager
        self._renew_seconds = renew_seconds
        self._spec = {"holderIdentity": identity, "leaseDurationSeconds": max(round(lease_seconds), 1)}
        self._metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        self.last_error = ""
        self.taken = 0
        """How many beats the API has taken."""
        self._quit, self._due = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"heartbeat {name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._quit.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def beat(self) -> None:
        """Renew once; raises `kube.errors`, or what `before` raises."""
        self._before()
        annotations = dict(self._annotations())
        metadata = {**self._metadata, **({"annotations": annotations} if annotations else {})}
        body = _lease(metadata, {**self._spec, "renewTime": micro_time()})
        seconds = max(self._renew_seconds / 2, 1.0)  # a busy machine needs some of it
        timeouts = Timeouts(connect_seconds=seconds, read_seconds=seconds)
        apply.apply(self._api, self._path, body, manager=self._manager, force=True, timeouts=timeouts)
        self._taken_at = time.monotonic()
        self.taken += 1

    def beat_now(self) -> None:
        """Have the thread renew at once instead of when the next renewal is due."""
        self._due.set()

    def retry_now(self) -> None:
        """The same, if the last renewal failed or was held back by `before`."""
        if self.last_error:
            self._due.set()

    def age_seconds(self) -> float:
        """Since the API took one; since the start, where it took none yet."""
        return time.monotonic() - self._taken_at

    def _run(self) -> None:
        while not self._quit.is_set():
            self._due.clear()
            try:
                self.beat()
                self.last_error = ""
            except Exception as error:  # noqa: BLE001 - the next beat may work, whatever this was
                if str(error) != self.last_error:
                    log.warning("heartbeat %s: %s", self._path, error)
                self.last_error = str(error) or type(error).__name__
            self._due.wait(min(self._renew_seconds, RETRY_SECONDS) if self.last_error else self._renew_seconds)
