"""The controller as a process: killed at bad moments it continues; unusable settings it reports in one sentence."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.__main__ import main
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_LEASE, NAMESPACE
from kube import apply
from kube.leases import lease_path
from sandbox.apiserver.api.requests import Request
from tests.apiserver import Delay
from tests.builders.objects import SLICE, node, partition, pod
from tests.controller.cluster import ApiCluster
from tests.controller.world import QUICK_ELECTION, WINDOW, ControllerWorld, instances
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.slow
GRACE_SECONDS = 30
"""terminationGracePeriodSeconds of the controller's pods."""


class Process:
    """`python -m controller`, as a Deployment or the sandbox runs it."""

    def __init__(self, directory: Path, cluster: ApiCluster, port: int = 0) -> None:
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
def process(tmp_path: Path, cluster: ApiCluster) -> Iterator[Process]:
    running = Process(tmp_path, cluster)
    yield running
    running.process.kill()
    running.process.wait(SECONDS)


@pytest.mark.thorough
def test_killed_at_bad_moments_it_continues_from_the_state_of_the_cluster(
    world: ControllerWorld, process: Process
) -> None:
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
    eventually(lambda: world.nominated("a") == "n1", "the nomination")
    assert cluster.get_plan()["metadata"]["generation"] == 2
    cluster.bind("a", "n1")
    used = [partition(i["start"], "Used", pod="default/a") for f in world.planned() for i in f["mig"]["instances"]]
    raw = cluster.get_plan()["status"]
    raw["gpus"][0]["partitions"] = used
    cluster.agent_status("n1", {key: raw[key] for key in ("gpus", "node", "observedGeneration")})
    process.end(signal.SIGKILL)
    process.start()
    cluster.pod(pod("b", requests={SLICE: "6"}))
    eventually(lambda: len(instances(world.planned())) == 7, "slices in addition to the one in use")
    starts = {i["start"] for found in world.planned() for i in found["mig"]["instances"]}
    assert used[0]["start"] in starts
    assert process.end(signal.SIGTERM) == 0
    log = process.log.read_text()
    assert "Traceback" not in log
    assert "stopping gpuplan-controller" in log


def test_sigterm_releases_the_lease(world: ControllerWorld, process: Process) -> None:
    world.cluster.node(node("n1"))
    world.wait_for_empty_plan()

    assert process.end(signal.SIGTERM) == 0

    lease = apply.get(world.cluster.api, lease_path(NAMESPACE, CONTROLLER_LEASE))
    assert not lease["spec"].get("holderIdentity")


def test_sigterm_ends_it_while_the_api_server_does_not_answer(world: ControllerWorld, process: Process) -> None:
    """Whatever it waits for: its Lease, and the answer to the creation of a plan."""
    world.cluster.node(node("n1"))
    world.wait_for_empty_plan()
    waiting = threading.Event()

    def hang(request: Request) -> Delay | None:
        # Not before: what is left to do for n1 would wait, and the plan of n2 for that.
        if request.method == "POST" and request.path == paths.PLANS:
            waiting.set()
        return Delay(seconds=2 * GRACE_SECONDS) if waiting.is_set() else None

    world.cluster.server.faults.append(hang)
    world.cluster.node(node("n2"))
    assert waiting.wait(GRACE_SECONDS)

    process.process.send_signal(signal.SIGTERM)

    assert process.process.wait(GRACE_SECONDS) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--config", "{dir}/absent.yaml"], "absent.yaml: No such file or directory: name a readable YAML file"),
        (["--config", "{dir}/bad.yaml"], "bad.yaml: unknown key batchWindow"),
        (["--kubeconfig", "{dir}/absent"], "No usable kubeconfig"),
        (["--config", "{dir}/odd.yaml", "--kubeconfig", "{dir}/kubeconfig"], "192.0.2.1:1 cannot be listened on"),
    ],
)
def test_unusable_settings_are_reported_in_one_sentence(
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
    printed = capsys.readouterr().err
    assert sentence in printed
    assert len(printed.splitlines()) == 1
