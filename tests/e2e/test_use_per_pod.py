"""The query of docs/metrics.md that gives the use of a MIG instance to its pod, as Prometheus' promtool evaluates it.

The agent's series are those that it exports. DCGM exporter's have the labels of a page that a user of it posted
(github.com/NVIDIA/dcgm-exporter, issue 544, version 4.2.3): its profile names may differ from NVML's, so nothing may be
matched by them.
"""

import re
from dataclasses import replace
from pathlib import Path

import yaml

from benchmarks.scrape import outcome
from crds.v1alpha1.names import PartitionState
from nodeagent.handover.config import DeviceKind
from nodeagent.hardware.partitions import Partition
from nodeagent.outcome.pass_result import PartitionOutcome
from nodeagent.report.metrics import AgentMetrics
from tests.docs.pages import ROOT
from tests.e2e.test_alerts import promtool, run

__all__ = ["promtool"]

IDLE, BUSY = "GPU-" + "0" * 31 + "0", "GPU-" + "0" * 31 + "1"


def documented() -> str:
    page = (ROOT / "docs/metrics.md").read_text()
    found: list[str] = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    (query,) = found
    return query


def exported() -> dict[str, str]:
    """What the agent of a node exports of its pods: seven MIG instances of GPU 0, and two MPS slices of GPU 1.

    Prometheus' target has labels `namespace` and `pod` of its own, so that it renames those of the page.
    """
    mig = outcome(0)
    whole = outcome(1)
    slices = tuple(_slice(number) for number in (1, 2))
    metrics = AgentMetrics("1", clock=lambda: 0.0, name_pods=True)
    metrics.found([mig, replace(whole, partitions=slices)])
    (family,) = (one for one in metrics.registry.collect() if one.name == "gpuplan_agent_partition_pod_info")
    target = {"namespace": "gpuplan-system", "pod": "gpuplan-agent-x"}
    renamed = [
        {f"exported_{key}" if key in target else key: at for key, at in one.labels.items()} for one in family.samples
    ]
    assert len(renamed) == 9
    return {series("gpuplan_agent_partition_pod_info", {**target, **labels}): "1" for labels in renamed}


def _slice(number: int) -> PartitionOutcome:
    partition = Partition(id=f"{BUSY}::10gb::{number}", resource="nvidia.com/gpu-10gb", gpu=BUSY, kind=DeviceKind.MPS)
    return PartitionOutcome(partition=partition, state=PartitionState.USED, pod=f"default/shared-{number}")


def series(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items() if value) + "}"


def dcgm(uuid: str, **instance: str) -> str:
    fixed = {
        "UUID": uuid,
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "h",
        "namespace": "gpu-operator",
        "pod": "d",
    }
    return series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {**fixed, **instance})


def test_each_instance_has_the_pod_that_uses_it_and_a_gpu_with_mps_slices_spoils_nothing(
    promtool: Path, tmp_path: Path
) -> None:
    use = {dcgm(IDLE, GPU_I_ID=str(7 + n), GPU_I_PROFILE="1g.11gb"): f"0.{n + 1}" for n in range(7)}
    use[dcgm(BUSY)] = "0.9"
    expected = [
        {"labels": series("", {"exported_namespace": "default", "exported_pod": f"pod-0-{n}"}), "value": (n + 1) / 10}
        for n in range(7)
    ]
    expr = f"sum by (exported_namespace, exported_pod) ({documented()})"
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": value} for name, value in {**exported(), **use}.items()],
        "promql_expr_test": [{"eval_time": "0m", "exp_samples": expected, "expr": expr}],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}))
    done = run(promtool, "test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
