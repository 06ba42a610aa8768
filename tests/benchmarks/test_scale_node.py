"""A simulated node's kubelet frees devices before any client can know it, and tells what came before each refusal."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale.hardware import mig_uuid
from benchmarks.scale.node import BoundPod, SimulatedNode
from benchmarks.scale.timetable import Timetable
from benchmarks.scale.workload import Gpu
from kube import clients
from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import NodePod
from nodeagent.settings import Settings
from partitioning.layouts import Instance, Layout
from tests.apiserver import ApiServer
from tests.waiting import eventually

UUID = "GPU-00000000-0000-0000-0000-000000000001"
PLACED = Instance(start=0, size=1, profile="1g.10gb")
RESOURCE = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        yield found


@pytest.fixture
def node(server: ApiServer, tmp_path: Path) -> Iterator[SimulatedNode]:
    api, table = clients.for_url(server.url), Timetable(time.monotonic, workers=2)
    gpus = (Gpu(uuid=UUID, mig=True, layout=Layout.of([PLACED])),)
    found = SimulatedNode(
        "scale-0000", gpus, api=api, kubelet_api=api, root=tmp_path, settings=Settings(), timetable=table
    )
    offered = Device(id=mig_uuid(UUID, PLACED), resource=RESOURCE, gpu=UUID, kind=DeviceKind.MIG)
    found._passing.run = lambda: None  # its agent has no plan, and would withdraw what is offered
    found._kubelet.load(PluginConfig.of([offered]))
    table.start()
    yield found
    table.stop()


def bound(name: str, seconds: float | None) -> BoundPod:
    pod = NodePod(uid=f"uid-{name}", namespace="default", name=name, containers=(("main", ((RESOURCE, 1),)),))
    return BoundPod(node="scale-0000", pod=pod, phase="Pending", seconds=seconds)


def test_devices_are_free_before_the_api_shows_the_end_of_their_pod(server: ApiServer, node: SimulatedNode) -> None:
    """As of the kubelet, whose pods are inactive before it writes their last phase."""
    second = bound("second", None)

    def bind(request: Any) -> None:
        if request.path.endswith("first/status") and b"Succeeded" in request.body:
            node.pod_changed(second.pod.key, None, second)

    server.faults.append(bind)
    first = bound("first", 0.0)
    node.pod_changed(first.pod.key, None, first)
    eventually(lambda: node.begun + len(node.refused) == 2, "both were judged")
    assert node.refused == []


def test_a_refused_pod_comes_with_what_its_node_saw_before(node: SimulatedNode) -> None:
    for name in ("first", "second"):
        pod = bound(name, None)
        node.pod_changed(pod.pod.key, None, pod)
    (text,) = node.refused
    when = r"\d+\.\d{3}"
    said = f"pod second refused: 1 {RESOURCE} requested, 1 listed, 0 free"
    assert re.fullmatch(f"scale-0000: {when} pod first admitted; {when} {said}", text)


def test_how_long_after_a_taint_a_pod_was_bound_all_the_same(node: SimulatedNode) -> None:
    key, pod = ("", "scale-0000"), bound("first", None)
    node.pod_changed(pod.pod.key, None, pod)
    assert node.latest_bind_seconds == 0.0
    node.node_changed(key, None, ObservedNode(name="scale-0000", uid="1", changing=True))
    late = bound("second", None)
    node.pod_changed(late.pod.key, None, late)
    assert node.latest_bind_seconds > 0.0
