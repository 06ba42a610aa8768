"""`python -m benchmarks.scale.agents FILE`: the nodes of one process, until SIGTERM.

The file (JSON) names the kubeconfigs, the nodes with their agents' tokens, and the settings; `benchmarks.scale.stage`
writes it. Sends the nodes' requests, and prints a line of counts at the end. Every agent writes with its own token,
bound to its pod and node, as the admission policies want it; the three watches are shared.
"""

import copy
import json
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.client import ApiClient

from benchmarks.scale.node import TICK_SECONDS, BoundPod, SimulatedNode, bound_pod
from benchmarks.scale.timetable import Timetable
from benchmarks.scale.workload import gpus_of
from crds.v1alpha1 import names
from kube import clients
from kube.reflector import Reflector
from kube.settings import read
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.settings import Settings

WORKERS = 12
MEMORY = Path("/dev/shm")
T = TypeVar("T")


class Fleet:
    """Some hundred nodes."""

    def __init__(self, order: Mapping[str, Any], root: Path) -> None:
        self._timetable = Timetable(time.monotonic, workers=WORKERS)
        base = clients.load(order["agentKubeconfig"], user_agent="scale-agent")
        kubelet = clients.load(order["kubeletKubeconfig"], user_agent="scale-kubelet")
        settings = read(Settings, order["settings"])
        self.nodes = {
            name: SimulatedNode(
                name,
                gpus_of(name, order["gpus"], order["seed"]),
                api=with_token(base, token),
                kubelet_api=kubelet,
                root=root,
                settings=settings,
                timetable=self._timetable,
            )
            for name, token in sorted(order["tokens"].items())
        }
        watching = with_token(base, next(iter(order["tokens"].values())))
        bound = {"fieldSelector": "spec.nodeName!="}
        self._reflectors: list[Reflector[Any]] = [
            Reflector(
                watching,
                f"/apis/{names.API_VERSION}/{names.PLURAL}",
                project=self._mine(parse_plan),
                on_change=self._plan_changed,
            ),
            Reflector(watching, "/api/v1/nodes", project=self._mine(parse_node), on_change=self._node_changed),
            Reflector(watching, "/api/v1/pods", params=bound, project=self._my_pod, on_change=self._pod_changed),
        ]

    def run(self, stopping: threading.Event) -> None:
        for reflector in self._reflectors:
            reflector.start()
        for reflector in self._reflectors:
            while not (reflector.synced.wait(0.2) or stopping.is_set()):
                pass
        for number, node in enumerate(self.nodes.values()):
            node.start(offset_seconds=TICK_SECONDS * number / len(self.nodes))
        self._timetable.start()
        stopping.wait()
        self._timetable.stop()
        for reflector in self._reflectors:
            reflector.stop()

    def counts(self) -> dict[str, int]:
        nodes = self.nodes.values()
        return {
            "passes": sum(node.passes for node in nodes),
            "failures": self._timetable.failures,
            "pods_begun": sum(node.begun for node in nodes),
            "pods_refused": sum(len(node.refused) for node in nodes),
        }

    def last_words(self) -> dict[str, Any]:
        nodes = self.nodes.values()
        return {
            "counts": self.counts(),
            "refused": [pod for node in nodes for pod in node.refused],
            "latest_bind_seconds": max(node.latest_bind_seconds for node in nodes),
        }

    def _mine(self, parse: Callable[[Mapping[str, Any]], T]) -> Callable[[dict[str, Any]], T | None]:
        return lambda raw: parse(raw) if raw["metadata"]["name"] in self.nodes else None

    def _my_pod(self, raw: dict[str, Any]) -> BoundPod | None:
        return bound_pod(raw) if raw["spec"].get("nodeName") in self.nodes else None

    def _plan_changed(self, key: tuple[str, str], old: ObservedPlan | None, new: ObservedPlan | None) -> None:
        self.nodes[key[1]].plan_changed(key, old, new)

    def _node_changed(self, key: tuple[str, str], old: ObservedNode | None, new: ObservedNode | None) -> None:
        self.nodes[key[1]].node_changed(key, old, new)

    def _pod_changed(self, key: tuple[str, str], old: BoundPod | None, new: BoundPod | None) -> None:
        found = new or old
        if found is not None:
            self.nodes[found.node].pod_changed(key, old, new)


def with_token(base: ApiClient, token: str) -> ApiClient:
    """Another identity on the same connections: a thousand pools would only cost memory."""
    api = copy.copy(base)
    api.default_headers = {**base.default_headers, "Authorization": f"Bearer {token}"}
    return api


def main() -> int:
    """Run until a signal."""
    order = json.loads(Path(sys.argv[1]).read_text())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    # State on real disks would make thousands of syncs a minute, each agent's share of which is its own node's.
    with tempfile.TemporaryDirectory(prefix="gpuplan-scale-", dir=MEMORY if MEMORY.is_dir() else None) as root:
        fleet = Fleet(order, Path(root))
        fleet.run(stopping)
    print(json.dumps(fleet.last_words()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
