"""A bench with watches that may lag, and a connection of its own: one controller's, of several one after the other."""

from collections.abc import Collection
from dataclasses import replace

from prometheus_client import CollectorRegistry

from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.cache.batcher import Batcher
from controller.cache.cluster import ClusterCache, Deadlines
from controller.cache.state import State
from kube import apply, clients
from tests.clock import Clock
from tests.controller.cluster import ApiCluster, Bench

DEADLINES = Deadlines(ageing_seconds=120.0, drain_seconds=300.0)
IDLE_SECONDS, TIMEOUT_SECONDS = 1.0, 5.0
PODS = "/api/v1/namespaces/default/pods"


class LateBench(Bench):
    """Of one controller, with watches that may lag."""

    def __init__(self, cluster: ApiCluster, clock: Clock, *, epoch: float) -> None:
        """`epoch`: the server's time when the clock began."""
        super().__init__(cluster)
        self.clock = clock
        self.late: Collection[str] = ()
        self._api = clients.for_url(cluster.server.url)
        """Its own, so that a connection that breaks is none of the life's."""
        self.window = Batcher(idle_seconds=IDLE_SECONDS, timeout_seconds=TIMEOUT_SECONDS, clock=clock)
        self.state = State(
            ClusterCache(options=self.options, clock=clock, deadlines=DEADLINES, wall=lambda: epoch + clock.now),
            window=self.window,
        )
        self.metrics = Metrics(CollectorRegistry())
        self._pods: set[str] = set()

    @property
    def environment(self) -> Environment:
        return replace(super().environment, api=self._api)

    def load(self) -> None:
        """What watches that are not late bring."""
        self.cluster.load(self.state, late=self.late)
        if "pods" not in self.late:
            listed = {raw["metadata"]["name"] for raw in apply.get(self.cluster.api, PODS)["items"]}
            for name in sorted(self._pods - listed):
                self.state.observe_pod(("default", name), None)
            self._pods = listed
