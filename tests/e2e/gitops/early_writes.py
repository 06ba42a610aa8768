"""Tries, all the time while something is being installed, what only the admission policies forbid.

Takes a cluster; a thread writes as the service accounts of controller and agent, as dry runs. Without rights RBAC
refuses, with rights a policy must: one write that is allowed means that rights were in force before their policy.
"""

import threading
from collections import Counter
from typing import Any, Self

from crds.v1alpha1 import names
from tests.builders.objects import lease
from tests.e2e.real_cluster import AGENT, CONTROLLER, LEASES, PLANS, RealCluster, call, plan
from tests.waiting import eventually

PAUSE_SECONDS = 0.02
WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    CONTROLLER: (PLANS, plan("elsewhere", mode="Manual")),
    AGENT: (LEASES, lease(names.agent_lease("n"))),
}


class EarlyWrites:
    """Tries within the `with`; `allowed` and `refused` count the answers by account."""

    def __init__(self, cluster: RealCluster) -> None:
        self._users = {account: _impersonated(cluster, account) for account in WRITES}
        self.allowed: Counter[str] = Counter()
        self.without_rights: Counter[str] = Counter()
        self.by_policy: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for_rights(self) -> None:
        """Until each account has its rights, and a policy refuses what they would allow."""
        eventually(lambda: all(self.by_policy[name] for name in WRITES), "policies refuse", seen=lambda: self.by_policy)

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_SECONDS):
            for account, (path, body) in WRITES.items():
                answer = call(self._users[account], "POST", path, body, dryRun="All")
                if answer.allowed:
                    self.allowed[account] += 1
                elif "ValidatingAdmissionPolicy" in answer.message:
                    self.by_policy[account] += 1
                else:
                    self.without_rights[account] += 1


def _impersonated(cluster: RealCluster, account: str) -> Any:
    """The administrator as that account: a token would need the account to be there."""
    client = cluster.person(f"as-{account}", ("system:masters",))
    client.default_headers["Impersonate-User"] = f"system:serviceaccount:{names.NAMESPACE}:{account}"
    return client
