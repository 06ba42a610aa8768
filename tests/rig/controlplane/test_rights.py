"""Which questions show that the bindings of deploy/ are in force."""

from typing import Any

from tests.e2e.rig.controlplane.rights import reviews
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

BODIES: list[dict[str, Any]] = [
    {
        "kind": "ClusterRole",
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": ["g"], "resources": ["a/b"], "verbs": ["patch"]}],
    },
    {
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "n"},
        "rules": [{"apiGroups": [""], "resources": ["c"], "verbs": ["get"], "resourceNames": ["x"]}],
    },
    {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "r"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"name": "s", "namespace": "n"}],
    },
    {
        "kind": "RoleBinding",
        "metadata": {"name": "r", "namespace": "n"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"name": "s", "namespace": "n"}],
    },
]


def test_one_question_per_binding_and_account() -> None:
    requested = [(review["user"], review["resourceAttributes"]) for review in reviews(BODIES)]
    who = "system:serviceaccount:n:s"
    assert requested == [
        (who, {"group": "g", "resource": "a", "subresource": "b", "verb": "patch", "namespace": "", "name": ""}),
        (who, {"group": "", "resource": "c", "subresource": "", "verb": "get", "namespace": "n", "name": "x"}),
    ]


def test_every_binding_of_deploy_is_asked_about() -> None:
    bodies = list(manifests_of(MANIFESTS))
    bindings = [body for body in bodies if body["kind"].endswith("RoleBinding")]
    assert bindings
    assert len(list(reviews(bodies))) == sum(len(body["subjects"]) for body in bindings)
