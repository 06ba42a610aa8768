"""Keeps every resource registered with the kubelet, over restarts of the kubelet and of this process.

A kubelet up to 1.36 closes the newest stream of a resource when an older one ends, and none ever redials. So there is
one stream at a time: serve, then register; never while a stream of ours is open or ended just now; again when the
kubelet ends the stream or creates its socket again. GetAllocatableResources is read for as long as the registration
lives, since others can end it too: what it does not show within a second, twice in a row, is registered again, whatever
the cause. One thread; all state of a resource is in its `Link`.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import grpc

from kube.backoff import Backoff
from kube.change_log import ChangeLog
from kube.kubelet_api import deviceplugin_pb2 as pb
from kube.kubelet_api import deviceplugin_pb2_grpc as rpc
from kube.kubelet_api.allocatable import CHANNEL_OPTIONS, read_allocatable
from kube.kubelet_api.paths import DEVICE_PLUGIN_VERSION, KubeletPaths, unix_target
from nodeagent.device_plugin.device_lists import DeviceLists
from nodeagent.device_plugin.server import Endpoint
from nodeagent.handover.files import Identity, identity
from nodeagent.handover.rival_sockets import rival_sockets

log = logging.getLogger(__name__)

MISSES = 2
ReadIds = Callable[[], Mapping[str, frozenset[str]] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationTiming:
    rest_seconds: float = 0.2  # after a stream of ours ended, so that the kubelet has processed its end
    first_backoff_seconds: float = 0.1
    cap_backoff_seconds: float = 5.0
    register_seconds: float = 15.0  # the kubelet dials us for up to 10 s before it answers
    stream_seconds: float = 10.0  # within which it opens the stream after its answer; at once where it is not busy
    verify_seconds: float = 1.0
    verify_pause_seconds: float = 0.05
    verify_again_seconds: float = 10.0
    verify_often_seconds: float = 30.0  # from then on
    unanswered_seconds: float = 60.0  # without an answer from pod-resources, until it is reported
    poll_seconds: float = 5.0  # of kubelet.sock, besides calls of `wake`


@dataclass(slots=True)
class Link:
    """One resource's registration with the kubelet. Times are monotonic."""

    endpoint: Endpoint
    backoff: Backoff
    due: float  # not to be registered before
    kubelet: Identity | None = None  # the socket that it was last registered on
    registered: float = float("-inf")  # when that began
    verified: bool = False
    verify_at: float | None = None  # read again then; None: nothing to verify
    verify_by: float | None = None  # and give up then; set by the first reading
    misses: int = 0  # readings in a row, of a second each, that did not show what was sent
    problem: str = ""


class Registrar:
    def __init__(
        self,
        paths: KubeletPaths,
        lists: DeviceLists,
        *,
        judge: Callable[[Identity | None], None],
        on_change: Callable[[], None],
        timing: RegistrationTiming,
    ) -> None:
        self._paths, self._lists, self._judge, self._on_change = paths, lists, judge, on_change
        self._timing = timing
        self._lock = threading.Lock()  # guards _links
        self._links: dict[str, Link] = {}
        self._change_log = ChangeLog(log)
        self._socket: Identity | None = None
        self._unanswered_since: float | None = None  # monotonic, of the first call without an answer
        self._wake, self._quit = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="registrar")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """From here on an ended stream is left ended, and nothing counts as registered."""
        self._quit.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self._timing.register_seconds)
        with self._lock:
            self._links = {}

    def wake(self) -> None:
        """Something may have changed: a stream, the lists, the kubelet's socket."""
        self._wake.set()

    def add(self, endpoint: Endpoint) -> None:
        """Keep this one registered from now on. An earlier process of ours may have ended just now: rest first."""
        timing = self._timing
        backoff = Backoff(first_seconds=timing.first_backoff_seconds, cap_seconds=timing.cap_backoff_seconds)
        with self._lock:
            self._links[endpoint.server.resource] = Link(
                endpoint=endpoint, backoff=backoff, due=time.monotonic() + timing.rest_seconds
            )
        self._wake.set()

    def registered(self) -> Mapping[str, bool]:
        with self._lock:
            return {resource: link.verified for resource, link in sorted(self._links.items())}

    def problems(self) -> Mapping[str, str]:
        with self._lock:
            return {resource: link.problem for resource, link in sorted(self._links.items()) if link.problem}

    def blind(self) -> str:
        """Why no registration can be verified; empty while they can, or for the first minute."""
        since, seconds = self._unanswered_since, self._timing.unanswered_seconds
        if since is None or time.monotonic() - since < seconds:
            return ""
        return (
            f"registrations are not verified: the kubelet has not answered on {self._paths.pod_resources_socket} for "
            f"{seconds:g} s; check that the device plugin's pod mounts this directory and that the kubelet runs"
        )

    def _run(self) -> None:
        while not self._quit.is_set():
            before = (self.registered(), self.problems(), self.blind())
            try:
                pause_seconds = self._step()
            except Exception:
                log.exception("registration failed unexpectedly")
                pause_seconds = self._timing.cap_backoff_seconds
            if (self.registered(), self.problems(), self.blind()) != before:
                self._on_change()
            self._wake.wait(pause_seconds)
            self._wake.clear()

    def _step(self) -> float:
        """Do what is due for every resource; the seconds until something else is."""
        socket = identity(self._paths.registration_socket)
        with self._lock:
            links = [link for _, link in sorted(self._links.items())]
        if socket != self._socket:
            self._socket = socket
            for link in links:
                link.due = min(link.due, time.monotonic())
                link.backoff.reset()
        self._judge(socket)  # before anything is listed to a new kubelet
        read_ids = functools.cache(self._read_ids)  # at most once for all resources
        pauses = [self._tend(link, socket, read_ids, time.monotonic()) for link in links if not self._quit.is_set()]
        return max(min([self._timing.poll_seconds, *pauses]), 0.0)

    def _read_ids(self) -> Mapping[str, frozenset[str]] | None:
        shown = read_allocatable(self._paths.pod_resources_socket, timeout_seconds=self._timing.verify_seconds)
        if shown is not None:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = time.monotonic()
        return shown

    def _tend(self, link: Link, socket: Identity | None, read_ids: ReadIds, now: float) -> float:
        server, timing = link.endpoint.server, self._timing
        streams = server.streams()
        if not streams:
            link.verified, link.verify_at = False, None
            due = max(link.due, server.last_ended + timing.rest_seconds)
            if link.kubelet == socket and server.last_ended < link.registered:
                # Its stream is still to come. A further registration would open a second one, and the end of either
                # takes the devices from the kubelet: on a busy node for ever.
                due = max(due, link.registered + timing.stream_seconds)
            if socket is None:
                link.problem = f"the kubelet's socket {self._paths.registration_socket} is not there"
                return timing.poll_seconds
            if now < due:
                return due - now
            if self._cedes(link, read_ids):
                # A registration of one throws the other one out.
                link.problem = "another device plugin serves it, and ours has nothing to advertise"
                return timing.poll_seconds
            if socket == identity(self._paths.registration_socket):  # the one that was judged
                self._register(link, socket)
            return timing.verify_pause_seconds
        outdated = socket is not None and link.kubelet is not None and socket != link.kubelet
        if len(streams) > 1 or outdated:
            server.end_streams()
            return timing.rest_seconds
        if link.verify_at is None:
            link.verify_at, link.verify_by = now, None
        return self._verify(link, read_ids, now) if now >= link.verify_at else link.verify_at - now

    def _cedes(self, link: Link, read_ids: ReadIds) -> bool:
        """We list nothing of it, and the kubelet shows devices that another plugin lists."""
        resource = link.endpoint.server.resource
        if self._lists.listing(resource).devices:
            return False
        shown = (read_ids() or {}).get(resource, frozenset())
        unknown = all(self._lists.device(id_) is None for id_ in shown)
        # NVIDIA's plugin uses the very ids that ours has: then only its socket shows whose they are.
        return bool(shown) and (unknown or bool(rival_sockets(self._paths.plugin_dir)))

    def _register(self, link: Link, socket: Identity) -> None:
        resource = link.endpoint.server.resource
        began = time.monotonic()
        try:
            link.endpoint.serve_again()
            name = link.endpoint.path.name
            request = pb.RegisterRequest(version=DEVICE_PLUGIN_VERSION, endpoint=name, resource_name=resource)
            target = unix_target(self._paths.registration_socket)
            with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
                rpc.RegistrationStub(channel).Register(request, timeout=self._timing.register_seconds)
        except (OSError, grpc.RpcError) as error:
            text = str(error) if isinstance(error, OSError) else cast(grpc.Call, error).details() or "no answer"
            self._change_log.warn(f"{resource} was not registered: {text}", resource)
            link.problem = text
            link.due = time.monotonic() + link.backoff.next_seconds()
            return
        self._change_log.warn("", resource)
        log.info("%s registered", resource)
        link.kubelet, link.registered, link.problem = socket, began, ""
        # The kubelet opens the stream after its answer. Where that ends at once, register again, but not in a storm.
        link.due = time.monotonic() + self._timing.verify_seconds + link.backoff.next_seconds()

    def _verify(self, link: Link, read_ids: ReadIds, now: float) -> float:
        server, timing = link.endpoint.server, self._timing
        if link.verify_by is None:
            link.verify_by = now + timing.verify_seconds
        expected = self._lists.listing(server.resource).healthy()
        shown = read_ids()
        as_sent = shown is None or shown.get(server.resource, frozenset()) == expected
        if server.pushed() and (as_sent or self._cedes(link, read_ids)):
            again = shown is None or not link.verified
            link.verified, link.misses, link.problem = True, 0, ""
            link.due = now
            link.backoff.reset()
            link.verify_at = now + (timing.verify_again_seconds if again else timing.verify_often_seconds)
            link.verify_by = None
            return timing.poll_seconds
        if now < link.verify_by:
            link.verify_at = now + timing.verify_pause_seconds
            return timing.verify_pause_seconds
        link.misses, link.verify_at, link.verify_by = link.misses + 1, now, None
        if link.misses < MISSES:
            return timing.verify_pause_seconds
        link.verified, link.misses = False, 0
        link.problem = "the kubelet does not show the devices that were sent to it, registering again"
        log.warning("%s: %s", server.resource, link.problem)
        link.due = now + timing.rest_seconds + link.backoff.next_seconds()
        server.end_streams()
        return timing.rest_seconds
