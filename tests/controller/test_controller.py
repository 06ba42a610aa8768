"""The whole controller with its watches and the real planner, against the API server; the test plays the agent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
import yaml

from controller import paths, wiring
from controller.__main__ import main
from controller.planner import plan
from controller.scheduler_source import SourceWatch
from controller.settings import read_settings
from controller.wiring import Controller
from kube import apply
from tests.controller.cluster import Cluster
from tests.controller.objects import SLICE, Json, gpu, node, partition, pod, status

T = TypeVar("T")
WINDOW = {"batchWindowIdleSeconds": 0.1, "batchWindowTimeoutSeconds": 0.5}
QUICK_ELECTION = {"leaseDurationSeconds": 1.5, "renewDeadlineSeconds": 1.0, "retryPeriodSeconds": 0.2}
SECONDS = 20.0


def wait_for(look: Callable[[], T], what: str) -> T:
    """The first true answer; looks again and again until the deadline."""
    deadline = time.monotonic() + SECONDS
    pause = threading.Event()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {SECONDS:g} s for {what}")
        pause.wait(0.02)


class World:
    """A cluster and the controllers that run against it."""

    def __init__(self, cluster: Cluster) -> None:
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

    # ------------------------------------------------------------------------------- the agent, by hand

    def beat(self, name: str = "n1") -> None:
        self._beats += 1
        self.cluster.beat(name, f"2026-01-01T00:00:00.{self._beats:06d}Z")

    def report_empty(self, name: str = "n1") -> None:
        """An agent that has just started on a node with one uncut GPU."""
        uid = self.cluster.get_node(name)["metadata"]["uid"]
        self.beat(name)
        self.cluster.agent_status(name, status(gpu(state="Unmanaged"), node_uid=uid))

    def obey(self, name: str = "n1") -> None:
        """Cut what the plan says, and let the node offer it."""
        raw = self.cluster.confirm(name)
        slices = [part["resource"] for found in raw["status"]["gpus"] for part in found["partitions"]]
        offered = {resource: str(slices.count(resource)) for resource in slices}
        apply.merge_patch(
            self.cluster.api, f"{paths.node(name)}/status", {"status": {"allocatable": offered, "capacity": offered}}
        )

    def planned(self, name: str = "n1") -> list[Json]:
        found: list[Json] = self.cluster.get_plan(name)["spec"].get("planned", {}).get("gpus", [])
        return found

    def wait_for_plan(self, name: str = "n1") -> list[Json]:
        return wait_for(lambda: self.planned(name), f"spec.planned of {name}")

    def wait_for_empty_plan(self, name: str = "n1") -> None:
        wait_for(lambda: name in self.cluster.plans(), f"the plan of {name}")

    def nominated(self, name: str) -> str:
        found: str = self.cluster.get_pod(name)["status"].get("nominatedNodeName", "")
        return found


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    world = World(cluster)
    yield world
    world.stop()


def decisions(controller: Controller) -> Json:
    with urlopen(f"http://127.0.0.1:{controller.port}/decisions", timeout=5) as answer:
        found: Json = yaml.safe_load(answer.read())
    return found


def instances(items: list[Json]) -> list[str]:
    return sorted(i["profile"] for found in items for i in found["mig"]["instances"])


def test_a_pending_pod_becomes_partitions(world: World) -> None:
    cluster = world.cluster
    cluster.node(node("n1"))
    cluster.pod(pod("a"))
    cluster.pod(pod("b", asks={"nvidia.com/mig-3g.40gb": "1"}))
    controller = world.start()
    world.wait_for_empty_plan()
    world.report_empty()
    items = world.wait_for_plan()
    assert instances(items) == ["1g.10gb", "3g.40gb"]
    assert all("start" in i for found in items for i in found["mig"]["instances"])
    assert items[0]["uuid"] == gpu()["uuid"]
    wait_for(lambda: decisions(controller)["underWay"] == ["n1"], "the node under way")
    world.obey()
    wait_for(lambda: [world.nominated(name) for name in ("a", "b")] == ["n1", "n1"], "both nominations")
    wait_for(lambda: decisions(controller)["idle"] and not decisions(controller)["underWay"], "rest")
    assert [(entry["name"], entry["outcome"], entry["node"]) for entry in decisions(controller)["pods"]] == [
        ("a", "placed", "n1"),
        ("b", "placed", "n1"),
    ]
    for name in ("a", "b"):
        cluster.bind(name, "n1")
    wait_for(lambda: cluster.conditions()["AgentAlive"]["observedGeneration"] == 2, "AgentAlive of this generation")
    assert cluster.get_plan()["metadata"]["generation"] == 2  # one plan, written once
    reasons = {(e["involvedObject"]["name"], e["reason"]) for e in wait_for(cluster.events, "events")}
    assert {("a", "Planned"), ("b", "Planned"), ("n1", "PlanWritten")} <= reasons


def test_a_pod_that_gets_nothing_has_a_reason_everywhere(world: World) -> None:
    cluster = world.cluster
    cluster.node(node("n1"))
    controller = world.start()
    world.wait_for_empty_plan()
    world.report_empty()
    cluster.pod(pod("huge", asks={"nvidia.com/mig-9g.999gb": "1"}))
    wait_for(lambda: decisions(controller)["pods"] and decisions(controller)["idle"], "a decision")
    entry = decisions(controller)["pods"][0]
    assert (entry["name"], entry["outcome"]) == ("huge", "unplaced")
    assert entry["reason"]
    assert entry["message"]
    event = wait_for(lambda: [e for e in cluster.events() if e["involvedObject"]["name"] == "huge"], "its event")[0]
    assert (event["type"], event["reason"], event["message"]) == ("Warning", entry["reason"], entry["message"])
    passes = decisions(controller)["pass"]
    world.beat()
    wait_for(lambda: decisions(controller)["idle"], "rest")
    assert decisions(controller)["pass"] == passes


def test_capacity_that_appears_is_planned_without_a_new_pod(world: World) -> None:
    cluster = world.cluster
    controller = world.start()
    cluster.pod(pod("a"))
    wait_for(lambda: [e["outcome"] for e in decisions(controller)["pods"]] == ["unplaced"], "a first no")
    cluster.node(node("n1"))
    world.wait_for_empty_plan()
    world.report_empty()
    assert instances(world.wait_for_plan()) == ["1g.10gb"]


def test_pages_tell_how_it_is(world: World) -> None:
    controller = world.start()
    base = f"http://127.0.0.1:{controller.port}"
    wait_for(lambda: controller.port and controller.state, "the controller")
    for path in ("/healthz", "/metrics"):
        with urlopen(base + path, timeout=5) as answer:
            assert answer.status == 200
    wait_for(lambda: decisions(controller)["pass"] == 1, "the first pass")
    with urlopen(f"{base}/readyz", timeout=5) as answer:
        assert answer.read() == b"ok\n"


def test_the_second_controller_takes_over_at_once_from_one_that_ends(world: World) -> None:
    world.cluster.node(node("n1"))
    first = world.start("one", leaderElection=QUICK_ELECTION)
    world.wait_for_empty_plan()
    second = world.start("two", leaderElection=QUICK_ELECTION)
    first.stop()
    wait_for(lambda: second.metrics.registry.get_sample_value("gpuplan_leader") == 1, "the second to lead")
    world.cluster.node(node("n2"))
    world.wait_for_empty_plan("n2")
    assert not first.lost


def test_a_lost_lease_ends_the_process(world: World) -> None:
    controller = world.start("one", leaderElection=QUICK_ELECTION)
    wait_for(lambda: decisions(controller)["pass"], "the first pass")
    for method in ("GET", "PUT"):
        world.cluster.refuse(method, "/leases/gpuplan-controller")
    wait_for(lambda: controller.lost, "the end")


# ------------------------------------------------------------------------------------------- as a process


class Process:
    """`python -m controller`, as a Deployment or the sandbox runs it."""

    def __init__(self, directory: Path, cluster: Cluster, port: int = 0) -> None:
        self._config = directory / "controller.yaml"
        self._config.write_text(yaml.safe_dump({**WINDOW, "metricsPort": port, "leaderElection": QUICK_ELECTION}))
        self._kubeconfig = directory / "kubeconfig"
        self._kubeconfig.write_text(cluster.server.kubeconfig())
        self.log = directory / "controller.log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "controller", "--config", str(self._config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--kubeconfig", str(self._kubeconfig)], stdout=log, stderr=log, env={**os.environ}
            )
        return self.process

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@pytest.fixture
def process(tmp_path: Path, cluster: Cluster) -> Iterator[Process]:
    running = Process(tmp_path, cluster)
    yield running
    running.process.kill()
    running.process.wait(SECONDS)


def test_killed_in_the_middle_it_goes_on_where_the_cluster_is(world: World, process: Process) -> None:
    cluster = world.cluster
    cluster.node(node("n1"))
    world.wait_for_empty_plan()
    process.end(signal.SIGKILL)
    world.report_empty()
    cluster.pod(pod("a"))
    process.start()
    world.wait_for_plan()
    process.end(signal.SIGKILL)
    world.obey()
    process.start()
    wait_for(lambda: world.nominated("a") == "n1", "the nomination")
    assert cluster.get_plan()["metadata"]["generation"] == 2
    cluster.bind("a", "n1")
    used = [partition(i["start"], "Used", pod="default/a") for f in world.planned() for i in f["mig"]["instances"]]
    raw = cluster.get_plan()["status"]
    raw["gpus"][0]["partitions"] = used
    cluster.agent_status("n1", {key: raw[key] for key in ("gpus", "node", "observedGeneration")})
    process.end(signal.SIGKILL)
    process.start()
    cluster.pod(pod("b", asks={SLICE: "6"}))
    wait_for(lambda: len(instances(world.planned())) == 7, "slices beside the one in use")
    starts = {i["start"] for found in world.planned() for i in found["mig"]["instances"]}
    assert used[0]["start"] in starts
    assert process.end(signal.SIGTERM) == 0
    log = process.log.read_text()
    assert "Traceback" not in log
    assert "gpuplan-controller ends" in log


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What `main` sets up is for a process of its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "{dir}/absent.yaml"], "absent.yaml: No such file or directory: give a readable YAML file"),
        (["--config", "{dir}/bad.yaml"], "bad.yaml: unknown key batchWindow"),
        (["--kubeconfig", "{dir}/absent"], "no API server to talk to"),
        (["--config", "{dir}/odd.yaml", "--kubeconfig", "{dir}/kubeconfig"], "192.0.2.1:1 cannot be listened on"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    (tmp_path / "bad.yaml").write_text("batchWindow: 3\n")
    (tmp_path / "odd.yaml").write_text("metricsAddress: 192.0.2.1\nmetricsPort: 1\n")
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [context],
                "current-context": "c",
            }
        )
    )
    assert main([argument.format(dir=tmp_path) for argument in arguments]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.splitlines()) == 1


def test_another_configuration_of_the_scheduler_ends_the_process(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "SourceWatch", partial(SourceWatch, look_seconds=0.05))
    path = tmp_path / "scheduler.yaml"
    configuration = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(yaml.safe_dump(configuration))
    controller = world.start(schedulerConfigFile=str(path))
    assert not controller.lost

    path.write_text(yaml.safe_dump({**configuration, "profiles": [{"schedulerName": "another"}]}))

    assert wait_for(lambda: controller.lost, "the controller to notice")
