"""Binds a pod to its node, and evicts a pod: pods/binding and pods/eviction.

Takes the posted Binding or Eviction and returns a Status. There are no disruption budgets.
"""

from sandbox.apiserver.errors import ApiError, bad_request
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions
from sandbox.apiserver.lifecycle.delete import delete
from sandbox.apiserver.lifecycle.update import update
from sandbox.apiserver.objects import Obj, dig, mappings, meta

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
    """What `kubectl drain` posts: a delete, since no disruption budget can refuse it here."""
    delete(cluster, target, eviction.get("deleteOptions") or {}, dry_run=options.dry_run)
    return SUCCESS
