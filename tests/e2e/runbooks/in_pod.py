"""`python -m tests.e2e.runbooks.in_pod POD MODULE args…`: run a module with the host name that its pod would have.

With GPUPLAN_TEST_DEFECT it is a version of the controller with two defects: planning raises an error for the node of
this name, and so does the step that emits due Events.
"""

import os
import runpy
import socket
import sys
from typing import Any

from controller.actions import cluster_gauges
from controller.actions.reporter import Reporter
from controller.model.views import NodeView
from controller.planner.inventory import eligibility

DEFECT = "GPUPLAN_TEST_DEFECT"


def _install_defects(node: str) -> None:
    take_stock_of = eligibility.node_stock

    def node_stock(found: NodeView, *rest: Any) -> Any:
        if found.name == node:
            raise LookupError(f"a defect of this version, for node {node}")
        return take_stock_of(found, *rest)

    def follow(_: Reporter) -> None:
        raise LookupError("a defect of this version, in reports")

    for module in (eligibility, cluster_gauges):
        setattr(module, "node_stock", node_stock)  # noqa: B010 - it is to be another function than the types say
    setattr(Reporter, "follow", follow)  # noqa: B010


def main() -> None:
    pod, module = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    socket.gethostname = lambda: pod
    if node := os.environ.get(DEFECT):
        _install_defects(node)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
