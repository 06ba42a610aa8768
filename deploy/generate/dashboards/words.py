"""What all dashboards of the chart share: selectors, variables, links, states and their colours."""

from crds.v1alpha1.names import GpuState, PartitionState
from deploy.generate.dashboards.panels import BLUE, GREEN, GREY, ORANGE, RED, YELLOW, Json, Variable
from nodeagent.report.gpu_gauges import STATE_CODES

ALL = 'cluster=~"$cluster", namespace=~"$namespace"'
"""Selects series of the release."""
RUNBOOKS = "docs/runbooks/"
"""Where runbooks are; the chart puts monitoring.prometheusRule.runbookBaseUrl here."""

CLUSTER = Variable(name="cluster", label="Cluster", query="label_values(gpuplan_build_info, cluster)")
NAMESPACE = Variable(
    name="namespace", label="Namespace", query='label_values(gpuplan_build_info{cluster=~"$cluster"}, namespace)'
)
NODE = Variable(name="node", label="Node", query=f"label_values(gpuplan_agent_silent{{{ALL}}}, node)")
NODE_ALONE = Variable(name="node", label="Node", query=NODE.query, many=False)
MODEL = Variable(name="model", label="Model", query=f"label_values(gpuplan_free_memory_slices{{{ALL}}}, model)")

LINKS: tuple[Json, ...] = (
    {
        "type": "dashboards",
        "title": "gpuplan",
        "tags": ["gpuplan"],
        "asDropdown": False,
        "keepTime": True,
        "includeVars": True,
    },
    {"type": "link", "title": "Runbooks", "url": f"{RUNBOOKS}README.md", "targetBlank": True},
)
TO_RUNBOOK: Json = {
    "title": "Runbook of ${__data.fields.alertname}",
    "url": f"{RUNBOOKS}${{__data.fields.alertname}}.md",
    "targetBlank": True,
}
TO_NODE: Json = {
    "title": "Node ${__data.fields.node}",
    "url": "/d/gpuplan-node?var-node=${__data.fields.node}&${cluster:queryparam}&${namespace:queryparam}",
}

PARTITION_STATES = {
    STATE_CODES[state]: (str(state), color)
    for state, color in (
        (PartitionState.FREE, GREEN),
        (PartitionState.USED, BLUE),
        (PartitionState.PENDING, YELLOW),
        (PartitionState.WITHDRAWN, ORANGE),
        (PartitionState.UNKNOWN, RED),
    )
}
GPU_STATES = {
    code: (str(state), color)
    for code, (state, color) in enumerate(
        (
            (GpuState.READY, GREEN),
            (GpuState.UNMANAGED, GREY),
            (GpuState.CHANGING, YELLOW),
            (GpuState.ADVERTISING, BLUE),
            (GpuState.WAITING_FOR_RELEASE, ORANGE),
            (GpuState.FAILED, RED),
        )
    )
}


def gpu_state_codes(selector: str) -> str:
    """An expression: the code of each GPU's state."""
    terms = [
        f'gpuplan_agent_gpu_state{{{selector}, state="{word}"}} * {code}' for code, (word, _) in GPU_STATES.items()
    ]
    return f"max by (gpu) ({' or '.join(terms)})"


def of_controller(metric: str, *by: str, where: str = "") -> str:
    """A series of the controller, once, however many replicas export it."""
    selector = f"{ALL}, {where}" if where else ALL
    return f"max by ({', '.join(by)}) ({metric}{{{selector}}})"


def quantile(of: float, histogram: str, *by: str, where: str = "") -> str:
    """Of what was observed lately."""
    selector = f"{ALL}, {where}" if where else ALL
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({of:g}, sum by ({labels}) (rate({histogram}_bucket{{{selector}}}[$__rate_interval])))"
