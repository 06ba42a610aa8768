"""What the stand-ins of kubelet and scheduler write to the API about pods and nodes.

Takes writes under keys and makes them on a loop: a newer one replaces one that was not made, and one that the API
server is not there for is made later. What is gone, or another object by now, is let be; a refusal is logged.
"""

import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from kubernetes.client import ApiClient

from kube.errors import ApiError, Conflict, NotFound, Unavailable
from kube.events import ObjectReference
from kube.transport import request
from sandbox.loop import Loop

log = logging.getLogger(__name__)
Write = Callable[[], object]
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Writes:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._newest: dict[Hashable, Write] = {}

    def submit(self, key: Hashable, write: Write) -> None:
        with self._lock:
            self._newest[key] = write
        self._loop.post(lambda: self._make(key, write, RETRY_SECONDS))

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._newest.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._newest

    def _make(self, key: Hashable, write: Write, pauses: tuple[float, ...]) -> None:
        with self._lock:
            if self._newest.get(key) is not write:
                return
        over = True
        try:
            write()
        except Unavailable as error:
            over = False
            log.debug("%s: %s", key, error)
            self._loop.after(pauses[0], lambda: self._make(key, write, pauses[1:] or pauses))
        except (NotFound, Conflict):
            pass
        except ApiError as error:
            log.warning("%s was refused: %s", key, error)
        finally:
            with self._lock:
                if over and self._newest.get(key) is write:
                    del self._newest[key]


class PodIdentity(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def path_of(pod: PodIdentity) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def reference(pod: PodIdentity) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)


def patch_pod_status(api: ApiClient, pod: PodIdentity, status: Mapping[str, Any]) -> None:
    """The uid is a precondition: a pod of the same name that came since keeps its own status."""
    patch(api, f"{path_of(pod)}/status", {"metadata": {"uid": pod.uid}, "status": status})


def patch(api: ApiClient, path: str, body: Mapping[str, Any]) -> None:
    """Strategic merge: lists by the keys of their items."""
    request(api, "PATCH", path, body=dict(body), content_type="application/strategic-merge-patch+json")
