"""Plain tables for people: pods with why they wait, plans with how they stand. Pure text, columns two blanks apart."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sandbox.settle import PodReport

MESSAGE_WIDTH = 100


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under a header; each column as wide as its widest cell, the last one as it is."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def pod_table(pods: Iterable[PodReport]) -> str:
    """One row per pod."""
    rows = [
        (
            pod.namespace,
            pod.name,
            pod.phase,
            pod.node or "-",
            pod.reason or "-",
            textwrap.shorten(pod.message, MESSAGE_WIDTH, placeholder=" …"),
        )
        for pod in pods
    ]
    return table(("NAMESPACE", "NAME", "PHASE", "NODE", "REASON", "MESSAGE"), rows)


def plan_table(plans: Iterable[Mapping[str, Any]]) -> str:
    """One row per plan, with the columns of `kubectl get gpupartitionplans`."""
    return table(("PLAN", "MODE", "MIG", "MPS", "READY", "REASON"), [_plan_row(plan) for plan in plans])


def _plan_row(plan: Mapping[str, Any]) -> tuple[str, ...]:
    status = plan.get("status", {})
    summary = status.get("summary", {})
    ready: Mapping[str, str] = next((c for c in status.get("conditions", []) if c["type"] == "Ready"), {})
    return (
        plan["metadata"]["name"],
        plan["spec"].get("mode", "Auto"),
        summary.get("mig", "-"),
        summary.get("mps", "-"),
        ready.get("status", "Unknown"),
        ready.get("reason", "-"),
    )
