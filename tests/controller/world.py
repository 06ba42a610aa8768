"""A cluster, whole controllers that run against it in threads, and a node's agent played by the test.

Takes settings and what the agent is to do; returns plans, nominations and decisions, each waited for with a deadline.
"""

import threading
from typing import Any
from urllib.request import urlopen

import yaml

from controller.config.settings import read_settings
from controller.planning import plan
from controller.wiring import Controller
from crds.v1alpha1 import paths
from kube import apply
from tests.builders.objects import Json, gpu, status
from tests.controller.cluster import ApiCluster
from tests.waiting import SECONDS, eventually

WINDOW = {"batchWindowIdleSeconds": 0.1, "batchWindowTimeoutSeconds": 0.5}
QUICK_ELECTION = {"leaseDurationSeconds": 1.5, "renewDeadlineSeconds": 1.0, "retryPeriodSeconds": 0.2}


class ControllerWorld:
    """A cluster and the controllers that run against it."""

    def __init__(self, cluster: ApiCluster) -> None:
        self.cluster = cluster
        self._running: list[tuple[Controller, threading.Thread]] = []
        self._beats = 0

    def start(self, identity: str = "one", **settings: Any) -> Controller:
        content = {**WINDOW, "metricsPort": 0, "leaderElection": {"enabled": False}, **settings}
        controller = Controller(self.cluster.api, read_settings(content), planner=plan, identity=identity)
        thread = threading.Thread(target=controller.run, name=f"controller {identity}")
        thread.start()
        self._running.append((controller, thread))
        return controller

    def stop(self) -> None:
        for controller, _ in self._running:
            controller.stop()
        for _, thread in self._running:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def beat(self, name: str = "n1") -> None:
        self._beats += 1
        self.cluster.beat(name, f"2026-01-01T00:00:00.{self._beats:06d}Z")

    def report_empty(self, name: str = "n1") -> None:
        """An agent that has just started on a node with one uncut GPU."""
        uid = self.cluster.get_node(name)["metadata"]["uid"]
        self.beat(name)
        self.cluster.agent_status(name, status(gpu(state="Unmanaged"), node_uid=uid))

    def obey(self, name: str = "n1") -> None:
        """Carry out the plan, and advertise the result on the node."""
        raw = self.cluster.confirm(name)
        slices = [part["resource"] for found in raw["status"]["gpus"] for part in found.get("partitions", ())]
        offered = {resource: str(slices.count(resource)) for resource in slices}
        apply.merge_patch(
            self.cluster.api, f"{paths.node(name)}/status", {"status": {"allocatable": offered, "capacity": offered}}
        )

    def planned(self, name: str = "n1") -> list[Json]:
        found: list[Json] = self.cluster.get_plan(name)["spec"].get("planned", {}).get("gpus", [])
        return found

    def wait_for_plan(self, name: str = "n1") -> list[Json]:
        return eventually(lambda: self.planned(name), f"spec.planned of {name}")

    def wait_for_empty_plan(self, name: str = "n1") -> None:
        eventually(lambda: name in self.cluster.plans(), f"the plan of {name}")

    def nominated(self, name: str) -> str:
        found: str = self.cluster.get_pod(name)["status"].get("nominatedNodeName", "")
        return found


def decisions(controller: Controller) -> Json:
    with urlopen(f"http://127.0.0.1:{controller.port}/decisions", timeout=60) as answer:
        found: Json = yaml.safe_load(answer.read())
    return found


def instances(items: list[Json]) -> list[str]:
    return sorted(i["profile"] for found in items for i in found["mig"]["instances"])
