"""RBAC that grants an account of ours everything, so that the policies alone are tried.

Takes a cluster and the account's name; opens a context in which every verb on every resource passes RBAC. Leaves
nothing behind: what deploy/ grants is in force again after it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crds.v1alpha1 import names
from kube import apply
from tests.e2e.real_cluster import RealCluster
from tests.waiting import eventually

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@contextmanager
def everything_granted(cluster: RealCluster, account: str) -> Iterator[None]:
    """Until the end every verb on every resource is the account's."""
    role = f"e2e-everything-{account}"
    subject = f"--serviceaccount={names.NAMESPACE}:{account}"
    cluster.kubectl("create", "clusterrole", role, "--verb=*", "--resource=*.*", check=True)
    cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", subject, check=True)
    try:
        eventually(lambda: _may_do_anything(cluster, account), f"{account} may do everything")
        yield
    finally:
        cluster.kubectl("delete", "clusterrolebinding,clusterrole", role, check=True)
        eventually(lambda: not _may_do_anything(cluster, account), f"{account} may do no more than deploy/ grants")


def _may_do_anything(cluster: RealCluster, account: str) -> bool:
    """By the least likely right that there is."""
    attributes = {"verb": "deletecollection", "group": "", "resource": "secrets", "namespace": "kube-system"}
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{names.NAMESPACE}:{account}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{names.NAMESPACE}", "system:authenticated"],
            "resourceAttributes": attributes,
        },
    }
    return bool(apply.create(cluster.admin, REVIEWS, review)["status"]["allowed"])
