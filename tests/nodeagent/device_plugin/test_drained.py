"""Drained devices around a start of the kubelet: it fails a pod again that is between two containers of its own, where
its checkpoint gives that pod a device that is Unhealthy."""

from dataclasses import replace

import pytest

from nodeagent.handover.config import PluginConfig
from nodeagent.handover.files import identity
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import MIG, mig
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TWO = PluginConfig.of([mig(0), mig(1)])
BOTH = frozenset({"MIG-0", "MIG-1"})


def drain(node: PluginNode, kubelet: FakeKubelet) -> None:
    """As the agent writes it, once it believes what this kubelet lists."""
    node.load(replace(TWO, drained=("MIG-0", "MIG-1"), kubelet=identity(kubelet.paths.registration_socket)))


def test_what_a_new_kubelet_records_is_healthy_until_its_pods_are_admitted(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    drain(node, kubelet)
    eventually(lambda: kubelet.healthy(MIG) == set(), "both are drained")

    kubelet.stop()
    kubelet.start()

    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0"}, "the one that its checkpoint names")
    assert set(kubelet.resources[MIG].offers) == {frozenset({"MIG-0"})}, "in each of its lists, and no other one"
    drain(node, kubelet)
    eventually(lambda: kubelet.healthy(MIG) == set(), "both are drained again")


def test_a_new_plugin_drains_on(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    plugin = start_plugin()
    node.load(TWO)
    kubelet.allocate(MIG, ids={"MIG-0"})
    drain(node, kubelet)
    plugin.stop()
    start_plugin()

    drain(node, kubelet)
    eventually(lambda: kubelet.healthy(MIG) == set(), "both are drained")
    assert set(kubelet.resources[MIG].offers) == {BOTH, frozenset()}
