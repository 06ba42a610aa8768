"""The chart as files for a tool that syncs from Git, and the objects that it made of them.

Takes helm and values; returns texts of deploy/manifests by file name. `generations` shows whether a sync changed
anything: the API server raises metadata.generation with each change of what people write.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from deploy.generate import manifests
from sandbox.ports import HeldPort
from tests.e2e.chart_node import ChartNode, kubeconfig, values_for
from tests.e2e.chart_release import KINDS, WORKLOADS, Program, Release
from tests.e2e.real_cluster import AGENT, CONTROLLER, PLUGIN, RealCluster, call
from tests.waiting import eventually

NODE = "gpu-node-1"


def rendered(helm: Path, folder: Path, values: Mapping[str, Any]) -> dict[str, str]:
    """Files of deploy/manifests, with these values."""
    given = folder / "values.yaml"
    given.write_text(yaml.safe_dump(dict(values)))
    done = manifests.template(helm, *manifests.OPTIONS, "--values", str(given))
    assert done.returncode == 0, done.stderr
    return manifests.split(done.stdout)


def generations(cluster: RealCluster) -> dict[str, int]:
    """metadata.generation of each object of the chart; its resourceVersion where the kind has no generation."""
    printed = cluster.kubectl("get", KINDS, "-A", "-l", "app.kubernetes.io/part-of=gpuplan", "-o", "json", check=True)
    found = {}
    for body in json.loads(printed)["items"]:
        meta = body["metadata"]
        found[f"{body['kind']}/{meta['name']}"] = int(meta.get("generation") or meta["resourceVersion"])
    return found


@contextmanager
def ports_and_values(folder: Path) -> Iterator[dict[str, Any]]:
    """Values for a node in this folder; the ports are reserved within the `with`."""
    with closing(HeldPort()) as controller_port, closing(HeldPort()) as agent_port:
        yield values_for(folder, controller_port.number, agent_port.number)


@contextmanager
def running(cluster: RealCluster, helm: Path, folder: Path) -> Iterator[None]:
    """One node with agent and device plugin, and a controller, all as the installed objects define them."""
    release = Release(cluster, helm, folder)
    for workload in (f"deployments/{CONTROLLER}", f"daemonsets/{AGENT}", f"daemonsets/{PLUGIN}"):
        eventually(partial(_is_there, cluster, workload), f"{workload} is applied")
    with ExitStack() as stack:
        node = ChartNode(NODE, release, folder)
        stack.callback(node.close)
        controller = Program(release, "deployments", CONTROLLER, folder)
        stack.callback(controller.kill)
        controller.start("--kubeconfig", kubeconfig(cluster, folder, cluster.token(CONTROLLER)))
        node.start()
        yield


def _is_there(cluster: RealCluster, workload: str) -> bool:
    return call(cluster.admin, "GET", f"{WORKLOADS}/{workload}").allowed
