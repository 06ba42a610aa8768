"""The watches that planning rests on: nodes, plans, pods, and the Leases of the agents.

Takes a state and feeds it from threads of its own; returns what is wrong with a watch. Nothing may be planned or
written from a watch that is not listed yet, or has failed for too long. What only some pods' filters need has watches
of its own (`controller.cache.informers`).
"""

from typing import Any

from kubernetes.client import ApiClient

from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.cache.state import State
from crds.v1alpha1 import paths
from crds.v1alpha1.names import ANNOTATION_STATUS_PROBLEM, agent_lease
from kube.leases import lease_path
from kube.pods import FINISHED
from kube.reflector import Key, Reflector

UNFINISHED = {"fieldSelector": ",".join(f"status.phase!={phase}" for phase in FINISHED)}
"""A pod that finishes leaves this watch, which is all that planning needs to know."""
STALE_SECONDS = 60.0
"""Nothing is planned or written from watches that have failed for so long."""

Beat = tuple[str, str, str]
"""The renewTime of an agent's Lease, why its status is refused if it is, and the resourceVersion."""


class Watches:
    """Every method may be called from any thread."""

    def __init__(self, api: ApiClient, state: State, *, namespace: str, agent_silent_seconds: float) -> None:
        """`namespace` has the Leases."""
        self._state = state
        leases = lease_path(namespace)
        # A watch of the Leases that fails makes agents seem to fall silent, one after the other.
        self._most_stale = {leases: min(STALE_SECONDS, agent_silent_seconds / 2)}
        self._reflectors: tuple[Reflector[Any], ...] = (
            Reflector(
                api, paths.NODES, project=read_node, on_change=lambda key, _old, new: state.observe_node(key[1], new)
            ),
            Reflector(
                api,
                paths.PLANS,
                project=state.read_plan,
                on_change=lambda key, _old, new: state.observe_plan(key[1], new),
            ),
            Reflector(api, leases, project=read_beat, on_change=self._lease_changed, on_gap=state.excuse_agents),
            Reflector(
                api,
                paths.PODS,
                params=UNFINISHED,
                project=read_pod,
                on_change=lambda key, _old, new: state.observe_pod(key, new),
            ),
        )

    def start(self) -> None:
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        for reflector in self._reflectors:
            reflector.stop()

    def current(self) -> bool:
        """All are listed, and none has failed for too long."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Why nothing may be planned; empty while all is well."""
        problems = [self._problem(reflector) for reflector in self._reflectors]
        return [problem for problem in problems if problem]

    def errors(self) -> dict[str, str]:
        """The last error of each watch, by path."""
        return {reflector.path: reflector.last_error for reflector in self._reflectors}

    def stale_seconds(self) -> dict[str, float]:
        """How long each watch has not kept its copy up to date, by path."""
        return {reflector.path: reflector.stale_seconds() for reflector in self._reflectors}

    def most_stale_seconds(self, path: str) -> float:
        """How long this watch may fail before nothing rests on it any more."""
        return self._most_stale.get(path, STALE_SECONDS)

    def _problem(self, reflector: Reflector[Any]) -> str:
        why = f": {reflector.last_error}" if reflector.last_error else ""
        if not reflector.synced.is_set():
            return f"{reflector.path} is not listed yet{why}"
        stale_seconds = reflector.stale_seconds()
        if stale_seconds <= self.most_stale_seconds(reflector.path):
            return ""
        return f"{reflector.path} has not been watched for {stale_seconds:.0f} s, nothing is planned until it is{why}"

    def _lease_changed(self, key: Key, _old: Beat | None, new: Beat | None) -> None:
        node = key[1].removeprefix(agent_lease(""))
        renew_time, problem, version = new or ("", "", None)
        self._state.observe_lease(node, version)
        if new is not None:  # the heartbeat of a Lease that is deleted just ages
            self._state.observe_heartbeat(node, renew_time, problem)


def read_beat(raw: dict[str, Any]) -> Beat | None:
    """None for Leases of others than agents."""
    if not raw["metadata"]["name"].startswith(agent_lease("")):
        return None
    renew_time = (raw.get("spec") or {}).get("renewTime")
    problem = (raw["metadata"].get("annotations") or {}).get(ANNOTATION_STATUS_PROBLEM, "")
    return (str(renew_time), str(problem), raw["metadata"]["resourceVersion"]) if renew_time else None
