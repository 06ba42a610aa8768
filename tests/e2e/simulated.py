"""Our simulator on a cluster as the API server holds it, and its verdict compared with the scheduler's.

Takes raw objects, read with the product's own readers, and kube-scheduler's verdict on a pod; returns None, or how
the two disagree. Different words for the same are translated. Our simulator is that of 1.36: where 1.30 is known to
consider less, that is removed from our simulator's input; nothing else is.
"""

import re
from collections import Counter
from collections.abc import Sequence

from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.api.reading import Unreadable
from controller.api.storage import read_claim, read_namespace, read_storage_class, read_volume
from controller.model.scheduling import SchedulingContext
from controller.model.views import NodeView, PodView
from controller.simulator.cluster import ClusterState
from controller.simulator.selectors import named_nodes
from controller.simulator.verdicts import DoesNotFit
from tests.e2e.random_pods import Json
from tests.e2e.scheduler_rig import CLAIMS, VOLUMES, SchedulerRig, Word

FINISHED = ("Succeeded", "Failed")
OLDEST = 30
"""The minor version that words some reasons in its own way, leaves nodes out of its counts, and overlooks ports."""
# 1.30 names the taint.
_TAINT = re.compile(r"node\(s\) had untolerated taint(\(s\)| \{.*?\})")
# The scheduler's reason for nodes that an affinity by name left out before any filter ran; ours names the filter.
LEFT_OUT = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_OLD_WORDS = {
    "node(s) had volume node affinity conflict": "node(s) didn't match PersistentVolume's node affinity",
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode": (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod"
    ),
}
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
TAINTED = "node(s) had untolerated taint(s)"


class Simulated:
    """The state of one cluster, followed while pods are bound."""

    def __init__(self, rig: SchedulerRig) -> None:
        self._rig = rig
        self._old = int(rig.plane.version.split(".")[1]) <= OLDEST
        nodes, namespaces, classes = rig.several("/api/v1/nodes", "/api/v1/namespaces", STORAGE_CLASSES)
        self.nodes = [_node(raw) for raw in nodes]
        self._namespaces = {raw["metadata"]["name"]: read_namespace(raw) for raw in namespaces}
        self._classes = {raw["metadata"]["name"]: read_storage_class(raw) for raw in classes}
        self.state = ClusterState()
        self.read()

    def read(self) -> None:
        """Update what changes when a pod is bound."""
        raw_pods, raw_claims, raw_volumes = self._rig.several("/api/v1/pods", CLAIMS, VOLUMES)
        pods = [self._pod(raw) for raw in raw_pods if (raw.get("status") or {}).get("phase") not in FINISHED]
        claims = {("red", raw["metadata"]["name"]): read_claim(raw) for raw in raw_claims}
        volumes = {raw["metadata"]["name"]: read_volume(raw) for raw in raw_volumes}
        context = SchedulingContext(
            namespaces={name: each for name, each in self._namespaces.items() if not isinstance(each, Unreadable)},
            claims={key: found for key, found in claims.items() if not isinstance(found, Unreadable)},
            volumes={name: found for name, found in volumes.items() if not isinstance(found, Unreadable)},
            storage_classes={name: each for name, each in self._classes.items() if not isinstance(each, Unreadable)},
        )
        self.state = ClusterState(self.nodes, [pod for pod in pods if pod.node], context=context)

    def disagreement(self, raw: Json, word: Word) -> str | None:
        """The difference between the scheduler's verdict on a pod that is not bound, and ours."""
        pod = self._pod(raw)
        if word.node:
            refusal = self.state.why_not(pod, word.node)
            return None if refusal is None else f"bound to {word.node}, ours: {refusal.plugin}: {refusal.message}"
        refusals = {node.name: self.state.why_not(pod, node.name) for node in self.nodes}
        fits = sorted(name for name, refusal in refusals.items() if refusal is None)
        if fits:
            return f"not bound: {word.message}; ours: fits {', '.join(fits)}"
        if word.nodes != len(self.nodes):
            return f"not bound: of {word.nodes} nodes, there are {len(self.nodes)}: {word.message}"
        if not word.reasons:
            refused = self.state.prefilter(pod).refused
            ours = refused.message if refused is not None else "looked at the nodes"
            return None if ours == word.message else f"not bound: {word.message}; ours: {ours}"
        expected = _translated(word)
        found = _counted(pod, [(name, refusal) for name, refusal in refusals.items() if refusal is not None])
        if self._old:
            found.pop(LEFT_OUT, None)
        return None if expected == found else f"not bound: {dict(expected)}; ours: {dict(found)}"

    def _pod(self, raw: Json) -> PodView:
        spec = raw["spec"]
        if self._old and "initContainers" in spec:  # it does not read the ports of sidecars
            init = [{**each, "ports": []} for each in spec["initContainers"]]
            raw = {**raw, "spec": {**spec, "initContainers": init}}
        view = read_pod(raw)
        assert not isinstance(view, Unreadable), view
        return view


def _translated(word: Word) -> Counter[str]:
    counted: Counter[str] = Counter()
    for reason, count in word.reasons:
        plain = _TAINT.sub(TAINTED, reason)
        counted[_OLD_WORDS.get(plain, plain)] += count
    return counted


def _counted(pod: PodView, refusals: Sequence[tuple[str, DoesNotFit]]) -> Counter[str]:
    """Reasons over all nodes, as the scheduler counts them."""
    names = named_nodes(pod)
    counted: Counter[str] = Counter()
    for node, refusal in refusals:
        counted.update([LEFT_OUT] if names is not None and node not in names else refusal.reasons)
    return counted


def _node(raw: Json) -> NodeView:
    view = read_node(raw)
    assert not isinstance(view, Unreadable), view
    return view
