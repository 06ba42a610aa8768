"""What gpuplan's agent may change in a Node: the rules of the admission policy gpuplan-agent-node, for the sandbox.

The server evaluates no ValidatingAdmissionPolicy and knows no users, but an agent writes amounts of GPU resources only
where this policy refuses it others. So where the rules are in force, a write to a Node by the agent's field manager is
held to them, in the words of the chart's policy. Must never allow what that policy refuses.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from crds.v1alpha1.names import AGENT_MANAGER, LABEL_MPS_DAEMONS, TAINT_CHANGING
from sandbox.apiserver.objects import MISSING, Obj, dig, mappings, meta

POLICY: Final = "gpuplan-agent-node"
_RESOURCES: Final = re.compile(
    r"nvidia\.com/(mig-[0-9]+g\.[0-9]+gb([.-][a-z]+)*|gpu|gpu\.shared|gpu-[1-9][0-9]*gb)|aliyun\.com/gpu-mem"
)
_AMOUNTS: Final = ("capacity", "allocatable")
_OF_THE_WRITE: Final = ("labels", "managedFields", "resourceVersion", "generation")


def refusal(manager: str, old: Obj, new: Obj, subresource: str) -> str:
    """Why this update of a Node is refused; empty where it is not."""
    why = next(_broken(old, new, subresource), "") if manager == AGENT_MANAGER else ""
    head = f"ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: gpuplan agent: "
    return f"{head}{why}" if why else ""


def _broken(old: Obj, new: Obj, subresource: str) -> Iterator[str]:
    """The messages of the rules that the update breaks, in the policy's order."""
    own_labels = () if subresource else (LABEL_MPS_DAEMONS,)
    if _differ(meta(old).get("labels"), meta(new).get("labels")) - {*own_labels}:
        yield f"the only node label that it may change is {LABEL_MPS_DAEMONS}"
    if _differ(meta(old), meta(new)) - {*_OF_THE_WRITE}:
        yield "annotations, finalizers and owners of a node are not its own"
    taints = [list(mappings(dig(node, "spec", "taints"))) for node in (old, new)]
    before, after = ([taint for taint in found if taint.get("key") != TAINT_CHANGING] for found in taints)
    if before != after:
        yield f"the only taint that it may change is {TAINT_CHANGING}"
    if any(taint.get("effect") != "NoSchedule" for taint in taints[1] if taint not in after):
        yield f"the taint {TAINT_CHANGING} has the effect NoSchedule only, it never evicts"
    if _differ(old.get("spec"), new.get("spec")) - {"taints"}:
        yield "the spec of a node is not its own"
    if _differ(old.get("status"), new.get("status")) - {*_AMOUNTS}:
        yield "of a node's status it may change capacity and allocatable only"
    if any(_foreign(_differ(dig(old, "status", field), dig(new, "status", field))) for field in _AMOUNTS):
        yield "the only amounts that it may change are those of GPU resources"


def _differ(old: Any, new: Any) -> set[str]:
    """Names of what was added, removed or changed."""
    old, new = old or {}, new or {}
    return {name for name in old.keys() | new.keys() if old.get(name, MISSING) != new.get(name, MISSING)}


def _foreign(names: Collection[str]) -> bool:
    return any(not _RESOURCES.fullmatch(name) for name in names)
