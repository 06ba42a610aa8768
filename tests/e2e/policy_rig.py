"""Every client that the policies distinguish, with something of each kind to write to.

Takes a cluster with deploy/ applied; gives two nodes with their agents' tokens, the controller, a token that is bound
to no pod, and alice, who may do everything with plans but owns one of the nodes only. RBAC grants our accounts
everything, and every request is a dry run: the same rig serves any number of tries in any order.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from kube import apply
from tests.builders import objects
from tests.builders.objects import manifest, pod
from tests.e2e import fleet
from tests.e2e.fleet import EnabledNode
from tests.e2e.real_cluster import (
    AGENT,
    APPLY,
    CONTROLLER,
    JSON_PATCH,
    MERGE,
    NODES,
    PLANS,
    Answer,
    RealCluster,
    call,
    plan,
)
from tests.e2e.wide_rights import everything_granted
from tests.waiting import eventually

OWN, OTHER, FROZEN = "rules-own", "rules-other", "rules-frozen"
WHOLE = {"index": 0, "whole": {}}
DEFAULT_PODS = "/api/v1/namespaces/default/pods"
POD = f"{DEFAULT_PODS}/rules-pod"
CHANGING = {"key": names.TAINT_CHANGING, "effect": "NoSchedule"}


def cut(index: int) -> dict[str, Any]:
    """A planned item."""
    return {"index": index, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}


def condition(kind: str, status: str) -> dict[str, Any]:
    """A condition of a plan."""
    return objects.condition(kind, status, "E2E")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRig:
    """The clients; every method is one request that changes nothing."""

    cluster: RealCluster
    own: EnabledNode
    other: EnabledNode
    controller: ApiClient
    unbound: ApiClient
    alice: ApiClient

    @property
    def admin(self) -> ApiClient:
        return self.cluster.admin

    @property
    def agent(self) -> ApiClient:
        """Of the own node."""
        return self.own.agent


def post(api: ApiClient, path: str, body: Any) -> Answer:
    return call(api, "POST", path, body, dryRun="All")


def merge(api: ApiClient, path: str, body: Any) -> Answer:
    return call(api, "PATCH", path, body, MERGE, dryRun="All")


def json_patch(api: ApiClient, path: str, *operations: dict[str, Any]) -> Answer:
    return call(api, "PATCH", path, list(operations), JSON_PATCH, dryRun="All")


def server_side(api: ApiClient, path: str, body: Any, manager: str) -> Answer:
    return call(api, "PATCH", path, body, APPLY, fieldManager=manager, force="true", dryRun="All")


def delete(api: ApiClient, path: str) -> Answer:
    return call(api, "DELETE", path, dryRun="All")


@contextmanager
def policy_rig(cluster: RealCluster) -> Iterator[PolicyRig]:
    """Made once per module."""
    with ExitStack() as ends:
        for account in (AGENT, CONTROLLER):
            ends.enter_context(everything_granted(cluster, account))
        controller = fleet.controller(cluster)
        _plans(cluster, controller)
        ends.callback(_clean, cluster)
        found = PolicyRig(
            cluster=cluster,
            own=fleet.enable(cluster, OWN),
            other=fleet.enable(cluster, OTHER),
            controller=controller,
            unbound=cluster.bearer(cluster.token(AGENT)),
            alice=_alice(cluster),
        )
        apply.create(cluster.admin, DEFAULT_PODS, _pod())
        yield found


def _plans(cluster: RealCluster, controller: ApiClient) -> None:
    for name in (OWN, OTHER, FROZEN):
        apply.create(cluster.admin, PLANS, plan(name))
        body = plan(name, planned={"gpus": [cut(0), cut(1)]})
        apply.apply(controller, f"{PLANS}/{name}", body, manager=names.CONTROLLER_MANAGER, force=True)
        status = {"observedGeneration": 1, "conditions": [condition("Ready", "True"), condition("Applied", "True")]}
        body = {**plan(name), "status": status}
        apply.apply_status(cluster.agent_of(name), f"{PLANS}/{name}", body, manager=names.AGENT_MANAGER)
    apply.merge_patch(cluster.admin, f"{PLANS}/{FROZEN}", {"spec": {"mode": "Manual", "gpus": [WHOLE]}})


def _alice(cluster: RealCluster) -> ApiClient:
    alice = cluster.person("rules-alice")
    create = ("create", "clusterrole")
    cluster.kubectl(
        *create,
        "rules-plans",
        "--verb=*",
        "--resource=gpupartitionplans.gpuplan.dev",
        check=True,
    )
    cluster.kubectl(*create, "rules-node", "--verb=patch", "--resource=nodes", f"--resource-name={OWN}", check=True)
    for role in ("rules-plans", "rules-node"):
        words = ("create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=rules-alice")
        cluster.kubectl(*words, check=True)
    eventually(lambda: merge(alice, f"{PLANS}/{OWN}", {"spec": {"paused": True}}).allowed, "RBAC of alice in force")
    return alice


def _pod() -> dict[str, Any]:
    return manifest(pod("rules-pod", requests={}, nodeSelector={"no": "where"}))


def _clean(cluster: RealCluster) -> None:
    cluster.kubectl("delete", "clusterrolebinding,clusterrole", "rules-plans", "rules-node", "--ignore-not-found")
    for path in (POD, *(f"{PLANS}/{name}" for name in (OWN, OTHER, FROZEN)), *(f"{NODES}/{n}" for n in (OWN, OTHER))):
        call(cluster.admin, "DELETE", path)
