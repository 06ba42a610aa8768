"""The chart's four dashboards: fleet, node, planner, SLO. `pages` returns each as the text of its JSON file.

Queries of the controller's series take the maximum over its pods, since a standby exports what it watches as well.
`$cluster` is a label that an administrator may add to what Prometheus reads; without it the variable is empty.
"""

from deploy.generate.dashboards import fleet, node, planner, slo
from deploy.generate.dashboards.panels import dashboard
from deploy.generate.dashboards.words import CLUSTER, LINKS, MODEL, NAMESPACE, NODE, NODE_ALONE


def pages() -> dict[str, str]:
    """By file name."""
    return {
        "fleet.json": dashboard(
            "gpuplan-fleet",
            "gpuplan / Fleet",
            "Supply and demand of GPU partitions in the whole cluster, and what is wrong with it.",
            variables=(CLUSTER, NAMESPACE, NODE, MODEL),
            rows=fleet.ROWS,
            links=LINKS,
        ),
        "node.json": dashboard(
            "gpuplan-node",
            "gpuplan / Node",
            "One node: each GPU's state and partitions over time, its agent and its device plugin.",
            variables=(CLUSTER, NAMESPACE, NODE_ALONE),
            rows=node.ROWS,
            links=LINKS,
        ),
        "planner.json": dashboard(
            "gpuplan-planner",
            "gpuplan / Planner",
            "How good plans are, what they cost, and how the controller gets on with the API server.",
            variables=(CLUSTER, NAMESPACE, MODEL),
            rows=planner.ROWS,
            links=LINKS,
        ),
        "slo.json": dashboard(
            "gpuplan-slo",
            "gpuplan / SLO",
            "How soon pods get their partitions, against an objective, and where the time goes.",
            variables=(CLUSTER, NAMESPACE),
            rows=slo.ROWS,
            links=LINKS,
            hours=24,
        ),
    }
