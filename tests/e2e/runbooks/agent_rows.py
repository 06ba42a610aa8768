"""Faults of agents, each with what its runbook shows and does."""

import os
import shutil

import yaml

from kube import apply
from tests.e2e.runbooks import obstacles
from tests.e2e.runbooks.node_rows import AGENTS, LOGS
from tests.e2e.runbooks.row import Row
from tests.e2e.runbooks.stage import Stage

PAGES = "get --raw /api/v1/namespaces/gpuplan-system/pods/POD:9841/proxy"


def _spoil_settings(stage: Stage) -> None:
    path = stage.cluster.nodes["one"].agent_settings
    shutil.copy(path, path.with_suffix(".good"))
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "resyncSeconds": "often"}))
    stage.end_process(stage.cluster.nodes["one"].agent)


def _restore_settings(stage: Stage) -> None:
    path = stage.cluster.nodes["one"].agent_settings
    os.replace(path.with_suffix(".good"), path)
    pods = stage.shell(
        "kubectl -n gpuplan-system get pods -l app.kubernetes.io/name=gpuplan-agent "
        "--field-selector spec.nodeName=one -o name"
    )
    stage.mitigate(
        "GpuplanAgentDown", "kubectl -n gpuplan-system delete pod POD", POD=pods.strip().removeprefix("pod/")
    )


def _hide_plans(stage: Stage) -> None:
    """Agents may not read plans any more; the others have read theirs."""
    obstacles.take_right(stage.cluster.api, "clusterroles/gpuplan-agent", "gpupartitionplans", "list")
    stage.end_process(stage.cluster.nodes["four"].agent)


def _refuse_status(stage: Stage) -> None:
    obstacles.refuse(stage.cluster.api, "status", "gpupartitionplans/status", "three")
    stage.pin("three", "2g.20gb")  # gives the agent something to write


AGENTS_ROWS = {
    "GpuplanAgentDown": Row(
        labels={"node": "one"},
        inject=_spoil_settings,
        sees={
            AGENTS: "gpuplan-agent-",
            "-n gpuplan-system logs POD --previous": "resyncSeconds",
            "get node NODE": "Ready",
        },
        mitigate=_restore_settings,
    ),
    "GpuplanAgentHeartbeatOld": Row(
        labels={"node": "two"},
        inject=lambda stage: obstacles.refuse(stage.cluster.api, "lease", "leases", "gpuplan-agent.two"),
        sees={LOGS: "no leases today", "auth can-i": "yes"},
        mitigate=lambda stage: obstacles.exempt(stage.cluster.api, "lease"),
    ),
    "GpuplanStatusNotWritten": Row(
        labels={"node": "three"},
        inject=_refuse_status,
        sees={
            LOGS: "no gpupartitionplans/status today",
            "get gpp NODE": "no gpupartitionplans/status today",
            "auth can-i": "yes",
        },
        mitigate=lambda stage: obstacles.exempt(stage.cluster.api, "status"),
    ),
    "GpuplanAgentPassesFailing": Row(
        labels={"node": "four"},
        inject=_hide_plans,
        sees={f"{PAGES}/readyz": "the plan not read from the API yet"},
        mitigate=lambda stage: stage.apply_again("31-rbac-agent.yaml"),
    ),
}


def _drop_agent(stage: Stage) -> None:
    """A quota keeps the DaemonSet from making another pod."""
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    apply.create(stage.cluster.api, "/api/v1/namespaces/gpuplan-system/resourcequotas", quota)
    defaults = "-l app.kubernetes.io/name=gpuplan-agent --field-selector spec.nodeName=one"
    stage.shell(f"kubectl -n gpuplan-system delete pod {defaults}")


def _lift_quota(stage: Stage) -> None:
    stage.shell("kubectl -n gpuplan-system delete resourcequota none")
    stage.await_ready("one")


SILENCE = {
    "GpuplanAgentSilent": Row(
        labels={"node": "one"},
        inject=_drop_agent,
        sees={
            "get node NODE": "gpuplan.dev/gpu-partitioning=mig",
            AGENTS: "No resources found",
            "-n gpuplan-system describe ds gpuplan-agent": "exceeded quota",
            "-n gpuplan-system get lease": "20",
        },
        mitigate=_lift_quota,
    ),
    "GpuplanPodsAwaitAgent": Row(
        labels={},
        inject=lambda stage: stage.pod("waits-for-agent", "one", "nvidia.com/mig-2g.20gb"),
        sees={"get gpp": "one ", AGENTS: "gpuplan-agent-", "-n gpuplan-system get leases": "gpuplan-agent.one"},
        mitigate=lambda stage: stage.await_running("waits-for-agent"),
    ),
}
