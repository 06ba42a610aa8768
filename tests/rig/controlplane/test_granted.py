"""Which rights count as used: the comparison by which `make e2e-node` fails for a right that nothing needs."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig.controlplane import audit
from tests.e2e.rig.controlplane.granted import Right, granted, unused, used
from tests.e2e.rig.controlplane.tenants import MANIFESTS

RBAC = "30-rbac-controller.yaml"
WHO = "gpuplan-controller"
ROLE = f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: more, namespace: gpuplan-system}}
rules:
  - {{apiGroups: [""], resources: [secrets], resourceNames: [a], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: more, namespace: gpuplan-system}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: more}}
subjects:
  - {{kind: ServiceAccount, name: {WHO}, namespace: gpuplan-system}}
"""


def installed(**more: str) -> dict[str, str]:
    """deploy/manifests, with other templates."""
    return {path.name: path.read_text() for path in sorted(MANIFESTS.glob("*.yaml"))} | more


def event(
    verb: str, resource: str, *, code: int = 200, name: str = "", namespace: str = "", **about: str
) -> audit.Event:
    reference: dict[str, Any] = {"resource": resource, "name": name, "namespace": namespace, **about}
    return {
        "user": {"username": audit.ACCOUNTS + WHO},
        "verb": verb,
        "objectRef": {key: value for key, value in reference.items() if value},
        "responseStatus": {"code": code},
        "requestURI": f"/{resource}/{name}",
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
    }


def right(verb: str, resource: str, group: str = "", **where: str) -> Right:
    return Right(account=WHO, verb=verb, group=group, resource=resource, **where)


LEASES = "coordination.k8s.io"
CASES = {
    "it was used": (right("list", "pods"), event("list", "pods"), True),
    "in any namespace": (
        right("patch", "pods/status"),
        event("patch", "pods", subresource="status", namespace="x"),
        True,
    ),
    "another verb": (right("get", "pods"), event("list", "pods"), False),
    "the object, not its status": (right("patch", "pods/status"), event("patch", "pods"), False),
    "a group of the same resource": (right("list", "events", "events.k8s.io"), event("list", "events"), False),
    "another namespace": (right("create", "events", namespace="a"), event("create", "events", namespace="b"), False),
    "this name": (right("get", "configmaps", name="a"), event("get", "configmaps", name="a"), True),
    "another name": (right("get", "configmaps", name="a"), event("get", "configmaps", name="b"), False),
    "what was not there": (right("get", "nodes"), event("get", "nodes", code=404), True),
    "it was refused": (right("patch", "nodes"), event("patch", "nodes", code=403), False),
    "an apply that creates": (
        right("create", "leases", LEASES),
        event("patch", "leases", code=201, apiGroup=LEASES),
        True,
    ),
    "an apply that changes": (
        right("create", "leases", LEASES),
        event("patch", "leases", apiGroup=LEASES),
        False,
    ),
    "no resource": (right("get", "pods"), {**event("get", "pods"), "objectRef": {}}, False),
}


@pytest.mark.parametrize(("granted_right", "request_event", "expected"), CASES.values(), ids=CASES)
def test_request_uses_a_right(granted_right: Right, request_event: audit.Event, expected: bool) -> None:
    assert (unused({granted_right: RBAC}, used([request_event])) == []) is expected


def test_rights_of_another_account_are_not_used() -> None:
    mine, other = right("list", "pods"), event("list", "pods")
    other["user"]["username"] = audit.ACCOUNTS + "gpuplan-agent"
    assert unused({mine: RBAC}, used([other])) != []


def test_every_rule_of_deploy_is_a_right() -> None:
    found = granted(installed())
    assert found[right("list", "pods")] == RBAC
    own_lease = right("update", "leases", LEASES, namespace="gpuplan-system", name=WHO)
    assert found[own_lease] == RBAC
    assert {one.account for one in found} == {WHO, "gpuplan-agent"}


def test_an_added_rule_that_nothing_uses_is_named_with_its_template() -> None:
    everything = granted(installed())

    found = unused(granted(installed(**{"99-more.yaml": ROLE})), everything)

    assert found == [
        "gpuplan-controller may get secrets a in namespace gpuplan-system: templates/99-more.yaml grants it, "
        "and nothing used it"
    ]


def test_refusals_are_reported_but_for_those_that_were_expected(tmp_path: Path) -> None:
    log = tmp_path / audit.LOG
    stranger = {**event("get", "nodes", code=403), "user": {"username": "system:anonymous"}}
    events = [event("list", "pods"), event("patch", "nodes", code=403, name="n1"), stranger]
    log.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    early = datetime.fromisoformat("2026-01-02T03:00:00Z")
    late = datetime.fromisoformat("2026-01-02T04:00:00Z")

    assert audit.forbidden(log, []) == ["gpuplan-controller patch /nodes/n1: "]
    assert audit.forbidden(log, [(late, late)]) == audit.forbidden(log, [])
    assert audit.forbidden(log, [(early, late)]) == []
