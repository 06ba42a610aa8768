"""A small cluster without a controller: agents, kubelets, scheduler and pods are played, on a clock that others move.

Takes an API server; pods come, are bound, run and end, agents obey plans and write statuses and counts. The test
that plays a life with it says when which of these happens.
"""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from crds.v1alpha1 import paths
from crds.v1alpha1.plan import effective_items
from crds.v1alpha1.spec import PlanSpec
from kube import apply
from partitioning.resources import mig_resource
from tests.builders import objects
from tests.clock import Clock
from tests.controller.cluster import ApiCluster
from tests.controller.late_bench import PODS
from tests.controller.played_gpus import Gpu, Pod

EPOCH = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
NODES, GPUS = ("n0", "n1"), 2
SIZES = {"1g.10gb": 10, "2g.20gb": 4, "3g.40gb": 4, "7g.80gb": 2}


class PlayedCluster:
    """The objects in the API, and what the nodes have; each method is one thing that happens."""

    def __init__(self, cluster: ApiCluster, rng: random.Random, clock: Clock) -> None:
        self.cluster, self.rng, self.clock = cluster, rng, clock
        cluster.server._cluster.clock = lambda: datetime.fromtimestamp(EPOCH + self.clock.now, UTC)
        self.gpus = {(node, index): Gpu(node, index) for node in NODES for index in range(GPUS)}
        self.counts: dict[str, Counter[str]] = {node: Counter() for node in NODES}
        """What each Node shows."""
        self.pods: dict[str, Pod] = {}
        self.number = self.beats = 0
        self.seen: Counter[str] = Counter()
        """How often something happened."""
        self._written: dict[str, Any] = {}
        labels = {"nvidia.com/gpu.count": str(GPUS)}
        for node in NODES:
            raw = objects.node(node)
            raw["metadata"]["labels"] |= labels
            cluster.node(raw)

    def come(self) -> None:
        self.number += 1
        profile = self.rng.choices(list(SIZES), weights=list(SIZES.values()))[0]
        one = Pod(f"p{self.number}", profile, seconds=10.0 * self.rng.randint(5, 120))
        self.pods[one.name] = one
        self.cluster.pod(objects.pod(one.name, requests={mig_resource(profile): "1"}))

    def schedule(self) -> None:
        """As kube-scheduler and the kubelets: on the nominated node, or on any that shows a free one."""
        raws = {raw["metadata"]["name"]: raw for raw in apply.get(self.cluster.api, PODS)["items"]}
        for one in self.pods.values():
            free = [node for node in NODES if not one.node and self.room(node, one.profile)]
            if not free:
                continue
            nominated = raws[one.name]["status"].get("nominatedNodeName")
            one.node = nominated if nominated in free else self.rng.choice(free)
            one.ends = self.clock.now + one.seconds
            devices = [(gpu, each) for gpu in self.gpus.values() for each in gpu.free if gpu.node == one.node]
            gpu, instance = self.rng.choice([found for found in devices if found[1].profile == one.profile])
            gpu.held[instance] = one.name
            self.cluster.bind(one.name, one.node)
            apply.merge_patch(self.cluster.api, paths.pod_status("default", one.name), {"status": {"phase": "Running"}})
            self.seen["bound"] += 1

    def room(self, node: str, profile: str) -> bool:
        bound = sum(one.node == node and one.profile == profile for one in self.pods.values())
        return self.counts[node][profile] > bound

    def end_pods(self) -> None:
        for one in [one for one in self.pods.values() if one.node and one.ends <= self.clock.now]:
            del self.pods[one.name]
            apply.delete(self.cluster.api, f"{PODS}/{one.name}", grace_seconds=0)
            for gpu in self.gpus.values():
                gpu.held = {each: name if name != one.name else "" for each, name in gpu.held.items()}

    def beat(self) -> None:
        self.beats += 1
        for node in NODES:
            self.cluster.beat(node, f"2026-01-01T00:00:00.{self.beats:06d}Z")

    def obey(self) -> bool:
        """As the agents: nothing that a pod holds is destroyed, and what is drained is for no new pod. True: news."""
        there, news = self.cluster.plans(), False
        for node in [name for name in NODES if name in there]:
            raw = self.cluster.get_plan(node)
            spec = PlanSpec.read(raw["spec"])
            mine = [gpu for gpu in self.gpus.values() if gpu.node == node]
            items = effective_items(spec, {gpu.index: gpu.uuid for gpu in mine})
            parts = [gpu.obey(items[gpu.index].wire() if gpu.index in items else None) for gpu in mine]
            status = objects.status(
                *parts, node_uid=self.cluster.get_node(node)["metadata"]["uid"], observed=raw["metadata"]["generation"]
            )
            offered = Counter(each.profile for gpu in mine for each in gpu.held if gpu.id_of(each) not in gpu.drained)
            self.counts[node] = offered
            if self._written.get(node) == (status, offered):
                continue
            news, self._written[node] = True, (status, offered)
            self.cluster.agent_status(node, status)
            amounts = {mig_resource(profile): str(offered[profile]) for profile in SIZES}
            body = {"status": {"allocatable": amounts, "capacity": amounts}}
            apply.merge_patch(self.cluster.api, f"{paths.node(node)}/status", body)
        return news
