"""Faults of hardware and of plans, each with what its runbook shows and does."""

from pathlib import Path

from sandbox.driver.store import Store
from tests import incidents, mps
from tests.e2e.runbooks import page
from tests.e2e.runbooks.row import Row
from tests.e2e.runbooks.stage import MPS, Stage

AGENTS = "-n gpuplan-system get pods -l app.kubernetes.io/name=gpuplan-agent"
PAGES = "get --raw /api/v1/namespaces/gpuplan-system/pods/POD:9841/proxy"
LOGS = "-n gpuplan-system logs POD"
SLICE = "nvidia.com/mig-1g.10gb"


def _machine(stage: Stage, node: str) -> tuple[str, str]:
    """The file of its hardware, and its GPU."""
    path = stage.cluster.nodes[node].machine
    return str(path), str(Store(path).read()["gpus"][0]["uuid"])


def _lose(stage: Stage) -> None:
    incidents.lose(*_machine(stage, "one"))


def _reset(stage: Stage) -> None:
    """As a lost GPU's page has it typed: gpuplan lets go of the driver, the GPU is reset, and all comes back."""
    shown = ("labeled", "drained", "condition met")
    for line, words in zip(page.steps("GpuplanDriverErrors"), shown, strict=True):
        printed = stage.shell(page.filled(line, {"NODE": "one"}))
        assert words in printed, printed
    incidents.find_again(*_machine(stage, "one"))  # what a reset of the GPU does to a machine
    for begins in ("kubectl label node NODE", "kubectl uncordon"):
        stage.mitigate("GpuplanDriverErrors", begins, NODE="one")
    stage.await_ready("one")


def _unload(stage: Stage) -> None:
    """As in the middle of an upgrade: the agent is started again and finds none."""
    incidents.set_driver_loaded(_machine(stage, "two")[0], False)
    stage.end_process(stage.cluster.nodes["two"].agent)


def _load(stage: Stage) -> None:
    incidents.set_driver_loaded(_machine(stage, "two")[0], True)
    stage.await_ready("two")


def _drift(stage: Stage) -> None:
    stage.pin("three", "1g.10gb")
    stage.eventually(lambda: stage.partitions("three") == [SLICE], "the instance", lambda: stage.gpus("three"))
    stage.await_ready("three")
    with Store(_machine(stage, "three")[0]).writing() as machine:
        machine["gpus"][0]["gpu_instances"] = []


def _pause_and_unpin(stage: Stage) -> None:
    """The page's advice to a person who works there: pause first."""
    stage.set_plan("three", paused=True)
    stage.set_plan("three", paused=None, gpus=None)


def _refuse(stage: Stage) -> None:
    body = {"nodeSelector": None, "nodeName": "four"}
    stage.pin("four", "1g.10gb")
    stage.eventually(lambda: stage.partitions("four") == [SLICE], "the instance", lambda: stage.gpus("four"))
    stage.await_ready("four")
    for name in ("first", "refused"):
        stage.pod(name, "four", SLICE, **body)
        stage.eventually(lambda: stage.phase(name) in ("Running", "Failed"), f"{name} was admitted or not")  # noqa: B023


def _create_again(stage: Stage) -> None:
    stage.shell("kubectl delete pod first refused --now")
    stage.set_plan("four", gpus=None)
    stage.pod("refused", "four", SLICE)
    stage.await_running("refused")
    stage.shell("kubectl delete pod refused --now")


def _pipe(stage: Stage) -> Path:
    (pipe,) = {path.parent for path in (stage.cluster.nodes[MPS].root / "mps").rglob(".sandbox-mps.json")}
    return pipe


def _share(stage: Stage) -> None:
    stage.pod("client", MPS, "nvidia.com/gpu-10gb")
    stage.await_running("client")
    stage.await_ready(MPS)


def _kill_daemon(stage: Stage) -> None:
    _share(stage)
    mps.kill(_pipe(stage))


def _hang_daemon(stage: Stage) -> None:
    _share(stage)
    mps.hang(_pipe(stage), 60)


def _end_daemon(stage: Stage) -> None:
    """As the page says: once no pod uses its slices."""
    stage.shell("kubectl delete pod client --now")
    mps.kill(_pipe(stage))


HARDWARE = {
    "GpuplanMPSDaemonDown": Row(
        labels={"node": MPS},
        inject=_hang_daemon,
        sees={
            "describe gpp NODE": "did not answer",
            "-n gpuplan-system get pods -l app.kubernetes.io/name=gpuplan-mps": "gpuplan-mps-",
            LOGS: "did not answer",
        },
        mitigate=_end_daemon,
    ),
    "GpuplanGPUUnhealthy": Row(
        labels={"node": "one"},
        inject=_lose,
        sees={"get gpp NODE": "lost"},
        mitigate=_reset,
    ),
    "GpuplanDriverErrors": Row(
        labels={"node": "two", "kind": "driver-gone"},
        inject=_unload,
        sees={"describe gpp NODE": "DriverError", AGENTS: "gpuplan-agent-"},
        mitigate=_load,
    ),
    "GpuplanPlanStalled": Row(
        labels={"node": "two", "reason": "DriverError"},
        inject=lambda stage: None,  # the driver that is gone, too
        sees={"get gpp NODE": "Stalled=True DriverError", "describe gpp NODE": "Stalled"},
        mitigate=_load,
    ),
    "GpuplanDrift": Row(
        labels={"node": "three"},
        inject=_drift,
        sees={"get events -A": "destroyed outside gpuplan", "describe gpp NODE": "DriftRepaired"},
        mitigate=_pause_and_unpin,
    ),
    "GpuplanPodsRefused": Row(
        labels={"node": "four"},
        inject=_refuse,
        sees={"get events -A": "refused", "get pods -A --field-selector status.phase=Failed": "refused"},
        mitigate=_create_again,
    ),
}


def _pin_missing(stage: Stage) -> None:
    stage.set_plan("one", gpus=[{"index": 7, "mig": {"instances": []}}])


def _pin_paused(stage: Stage) -> None:
    stage.set_plan("two", paused=True, gpus=[{"index": 0, "mig": {"instances": [{"profile": "2g.20gb", "count": 1}]}}])


def _unpause(stage: Stage) -> None:
    stage.set_plan("two", paused=None)
    stage.await_ready("two")
    stage.set_plan("two", gpus=None)


ENABLED = "gpuplan.dev/gpu-partitioning"


def _disable(stage: Stage) -> None:
    """One pod holds one of two instances, and the node is disabled."""
    stage.pin("three", "3g.40gb", "1g.10gb")
    stage.pod("holder", "three", SLICE)
    stage.await_running("holder")
    stage.await_ready("three")
    stage.shell(f"kubectl label node three {ENABLED}-")


def _end_holder(stage: Stage) -> None:
    stage.shell("kubectl delete pod holder --now")
    printed = stage.shell("kubectl wait --for=condition=HandedBack --timeout=60s gpp/three")
    assert "condition met" in printed, printed
    # The agent of a cluster leaves now, and its series with it; in a sandbox it runs on every node with GPUs.
    stage.shell(f"kubectl label node three {ENABLED}=mig")


PLANS = {
    "GpuplanGPUFailed": Row(
        labels={"node": "one", "reason": "NoSuchGPU"},
        inject=_pin_missing,
        sees={"get gpp NODE": "7 NoSuchGPU", "describe gpp NODE": "NoSuchGPU", "get events -A": "NoSuchGPU"},
        mitigate=lambda stage: stage.set_plan("one", gpus=None),
    ),
    "GpuplanChangeStuck": Row(
        labels={"node": "two"},
        inject=_pin_paused,
        sees={"describe gpp NODE": "the plan is paused", AGENTS: "gpuplan-agent-"},
        mitigate=_unpause,
    ),
    "GpuplanMPSRestored": Row(
        labels={"node": MPS},
        inject=_kill_daemon,
        sees={
            "get events -A": "MPSRestored",
            "-n gpuplan-system get pods -l app.kubernetes.io/name=gpuplan-mps": "gpuplan-mps-",
            LOGS: "ended",
            "get gpp NODE": "default/client",
        },
        mitigate=lambda stage: stage.shell("kubectl delete pod client --now"),
    ),
    "GpuplanCapacityUnusable": Row(
        labels={"node": "three", "state": "Withdrawn"},
        inject=_disable,
        sees={"get gpp NODE": "is held by pod default/holder", "describe gpp NODE": "Withdrawn"},
        mitigate=_end_holder,
    ),
}
