"""Pods and GPUs of a cluster that a test plays: what the hardware has, and what an agent makes of a plan's item.

Nothing that a pod holds is destroyed, whatever the item says, and what is drained is for no new pod.
"""

from crds.v1alpha1.plan import item_hash
from partitioning.layouts import Instance
from partitioning.placements import placements_of
from partitioning.resources import mig_resource
from tests.builders import objects
from tests.builders.models import H100
from tests.builders.objects import Json


class Pod:
    def __init__(self, name: str, profile: str, *, seconds: float) -> None:
        self.name, self.profile, self.seconds = name, profile, seconds
        self.node, self.ends = "", 0.0


class Gpu:
    """As the hardware has it, and the agent does it."""

    def __init__(self, node: str, index: int) -> None:
        self.node, self.index = node, index
        self.uuid = f"GPU-0000000{index}-0000-0000-0000-{int(node[1:]):012}"
        self.held: dict[Instance, str] = {}
        """With the pod, or nothing."""
        self.drained: frozenset[str] = frozenset()

    @property
    def free(self) -> list[Instance]:
        return sorted(one for one, pod in self.held.items() if not pod and self.id_of(one) not in self.drained)

    def id_of(self, one: Instance) -> str:
        return f"MIG-{self.node}-{self.index}-{one.profile}-{one.start}"

    def obey(self, item: Json | None) -> Json:
        """Cut it as the item has it, as far as pods let; its status."""
        wanted = None if item is None else {(one["profile"], one["start"]) for one in instances_of(item)}
        drain = (item or {}).get("drain") or {}
        self.drained = frozenset(drain.get("partitions", ()))
        if wanted is not None:
            self.held = {one: pod for one, pod in self.held.items() if pod or (one.profile, one.start) in wanted}
            for profile, start in sorted(wanted - {(one.profile, one.start) for one in self.held}):
                place = next(p for p in placements_of(H100)[profile] if p.instance.start == start)
                if not any(place.instance.mask & one.mask for one in self.held):
                    self.held[place.instance] = ""
        there = {(one.profile, one.start) for one in self.held}
        state = "Unmanaged" if wanted is None else "Ready" if there == wanted else "WaitingForRelease"
        parts = [self._partition(one, pod) for one, pod in sorted(self.held.items())]
        found = objects.gpu(self.index, state=state, partitions=parts) | {"uuid": self.uuid}
        return found | ({"planHash": item_hash(item)} if item is not None else {})

    def _partition(self, one: Instance, pod: str) -> Json:
        found = objects.partition(one.start, "Used" if pod else "Free", resource=mig_resource(one.profile))
        title = {"pod": f"default/{pod}"} if pod else {}
        return found | {"uuid": self.id_of(one), "size": one.size} | title


def instances_of(item: Json) -> list[Json]:
    found: list[Json] = (item.get("mig") or {}).get("instances") or []
    return found
