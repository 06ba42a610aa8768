"""The tables that `sandbox run` prints: pods with why they wait, plans with their readiness, devices of containers."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cli.tables import WRAP_WIDTH, table
from sandbox.gpu_containers import NO_DEVICE
from sandbox.kubelet.runtime import ContainerRecord
from sandbox.settle import PodReport

MESSAGE_WIDTH = 100
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""Every GPU container has them."""
NAMED_PODS = 3


def pod_table(pods: Iterable[PodReport]) -> str:
    """One row per pod; sentences too long for a row follow in full, each once."""
    pods = tuple(pods)
    rows = [
        (
            pod.namespace,
            pod.name,
            pod.phase,
            pod.node or "-",
            pod.reason or "-",
            _shortened(pod.message),
        )
        for pod in pods
    ]
    return "\n".join([table(("NAMESPACE", "NAME", "PHASE", "NODE", "REASON", "MESSAGE"), rows), *_in_full(pods)])


def container_table(containers: Iterable[ContainerRecord]) -> str:
    """What each container got for its devices besides what every GPU container has; empty where none got any."""
    rows = []
    for got in sorted(
        map(container_json, containers), key=lambda got: (got["namespace"], got["pod"], got["container"])
    ):
        own = {
            "device nodes": [node.removeprefix("/dev/") for node in got["deviceNodes"] if not _is_control(node)],
            "environment": [f"{name}={text}" for name, text in got["environment"].items() if _is_of_device(name, text)],
            "mounts": [path for path in got["mounts"] if not path.startswith("/usr/")],
        }
        if own["device nodes"] or own["environment"]:
            whose = (got["namespace"], got["pod"], got["container"])
            rows += [(*whose, kind, entry) for kind, entries in own.items() for entry in entries]
    return table(("NAMESPACE", "POD", "CONTAINER", "GOT", "WHICH"), rows) if rows else ""


def container_json(container: ContainerRecord) -> dict[str, Any]:
    """What a container got, for programs."""
    request, options = container.request, container.request.options
    return {
        "namespace": request.namespace,
        "pod": request.pod,
        "container": request.container,
        "deviceNodes": [f"{node.path} {node.major}:{node.minor}" for node in options.nodes],
        "environment": dict(sorted(options.env.items())),
        "mounts": sorted(mount.container_path for mount in options.mounts),
    }


def _is_control(node: str) -> bool:
    return node.split(" ", maxsplit=1)[0] in CONTROL_NODES


def _is_of_device(variable: str, value: str) -> bool:
    """NVIDIA_VISIBLE_DEVICES counts where it names devices, whose nodes NVIDIA's container runtime adds."""
    return variable.startswith("CUDA_MPS_") or (variable == "NVIDIA_VISIBLE_DEVICES" and value not in NO_DEVICE)


def _shortened(message: str) -> str:
    return textwrap.shorten(message, MESSAGE_WIDTH, placeholder=" …")


def _in_full(pods: Iterable[PodReport]) -> Iterator[str]:
    """The end of a sentence names the remedy, so it must be somewhere; pods with the same one share it."""
    names: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if _shortened(pod.message) != pod.message:
            names.setdefault((pod.reason, pod.message), []).append(f"{pod.namespace}/{pod.name}")
    for (reason, message), found in names.items():
        more = f" and {len(found) - NAMED_PODS} more" if len(found) > NAMED_PODS else ""
        yield f"\n{', '.join(found[:NAMED_PODS])}{more}: {reason}"
        yield from textwrap.wrap(message, WRAP_WIDTH, initial_indent="  ", subsequent_indent="  ")


def plan_table(plans: Iterable[Mapping[str, Any]]) -> str:
    """One row per plan, with the columns of `kubectl get gpupartitionplans` that a demonstration needs."""
    return table(("PLAN", "MODE", "MIG", "MPS", "WHOLE", "READY", "REASON"), [_plan_row(plan) for plan in plans])


def _plan_row(plan: Mapping[str, Any]) -> tuple[str, ...]:
    status = plan.get("status", {})
    summary = status.get("summary", {})
    ready: Mapping[str, str] = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
    return (
        plan["metadata"]["name"],
        plan["spec"].get("mode", "Auto"),
        summary.get("mig", "-"),
        summary.get("mps", "-"),
        summary.get("whole", "-"),
        ready.get("status", "Unknown"),
        ready.get("reason", "-"),
    )
