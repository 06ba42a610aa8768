"""pods/binding and pods/eviction: a pod gets its node, a pod is asked to go.

Comes in: the posted Binding or Eviction. Goes out: a Status. Disruption budgets are honoured by `disruptionsAllowed`
alone; nothing in the sandbox computes it.
"""

from __future__ import annotations

from sandbox.apiserver.errors import ApiError, bad_request
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions, entry_of
from sandbox.apiserver.lifecycle.delete import delete
from sandbox.apiserver.lifecycle.update import update
from sandbox.apiserver.objects import Obj, dig, mappings, meta
from sandbox.apiserver.storage.selectors import Requirement

_BUDGETS = ("policy", "poddisruptionbudgets")
SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def bind(cluster: Cluster, target: Target, binding: Obj, options: WriteOptions) -> Obj:
    """The one way to set spec.nodeName; PodScheduled becomes True with it."""
    node = dig(binding, "target", "name")
    if not node:
        raise bad_request('Binding "" is invalid: target.name: Required value')
    now = cluster.now()

    def build(pod: Obj) -> Obj:
        found = dig(pod, "spec", "nodeName")
        if meta(pod).get("deletionTimestamp"):
            raise _binding_conflict(target, f"pod {target.name} is being deleted, cannot be assigned to a host")
        if found:
            raise _binding_conflict(target, f'pod {target.name} is already assigned to node "{found}"')
        status = pod.get("status") or {}
        others = [c for c in mappings(status.get("conditions")) if c.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        status = {name: value for name, value in status.items() if name != "nominatedNodeName"}
        return {
            **pod,
            "spec": {**pod["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, scheduled]},
        }

    update(cluster, target, build, options)
    return SUCCESS


def _binding_conflict(target: Target, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on pods/binding "{target.name}": {why}'
    return ApiError(409, "Conflict", message, details={"name": target.name, "kind": "pods/binding"})


def evict(cluster: Cluster, target: Target, eviction: Obj, options: WriteOptions) -> Obj:
    pod = entry_of(cluster, target).obj
    budget = _budget_of(cluster, pod)
    if budget is not None:
        allowed = dig(budget, "status", "disruptionsAllowed") or 0
        name = meta(budget)["name"]
        if allowed <= 0:
            causes = [
                {"reason": "DisruptionBudget", "message": f"The disruption budget {name} needs more healthy pods"}
            ]
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise ApiError(429, "TooManyRequests", message, details={"causes": causes})
        _spend(cluster, target.namespace, name, allowed, options)
    delete(cluster, target, eviction.get("deleteOptions") or {}, dry_run=options.dry_run)
    return SUCCESS


def _budget_of(cluster: Cluster, pod: Obj) -> Obj | None:
    labels = meta(pod).get("labels") or {}
    for key, entry in sorted(cluster.store.collection(_BUDGETS).items.items()):
        wanted = dig(entry.obj, "spec", "selector", "matchLabels") or {}
        requirements = [Requirement(key=name, operator="in", values=(value,)) for name, value in wanted.items()]
        if key[0] == meta(pod).get("namespace") and wanted and all(r.matches(labels) for r in requirements):
            return entry.obj
    return None


def _spend(cluster: Cluster, namespace: str, name: str, allowed: int, options: WriteOptions) -> None:
    resource = cluster.resource("policy", "v1", "poddisruptionbudgets")
    target = Target(resource=resource, namespace=namespace, name=name, subresource="status")
    update(
        cluster,
        target,
        lambda budget: {**budget, "status": {**budget["status"], "disruptionsAllowed": allowed - 1}},
        options,
    )
