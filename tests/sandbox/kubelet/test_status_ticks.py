"""Rules 6 and 18: the node's status changes at the tick only, and what others wrote there is gone with the next one."""

import time
from dataclasses import replace

from sandbox.kubelet.writer import NodeTicks
from tests.sandbox.kubelet.builders import MIG, node
from tests.sandbox.kubelet.conftest import QUICK, KubeletBench
from tests.sandbox.kubelet.fake_api import FakeClusterApi
from tests.waiting import eventually


def test_a_change_waits_for_the_tick(bench: KubeletBench) -> None:
    bench.kubelet(tick_seconds=0.5)
    bench.plugin("MIG-0")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "the first tick")
    before = time.monotonic()
    bench.plugins[0].offer("MIG-0", "MIG-1").push()
    eventually(lambda: len(bench.offered()) == 2, "pod-resources has it at once")
    eventually(lambda: bench.api.allocatable(MIG) == ("2", "2"), "the node has it at the tick")
    (last, _), (previous, _) = bench.api.node_patches[-1], bench.api.node_patches[-2]
    assert last > before
    assert last - previous >= 0.5, "a tick is never shorter than its period"


def test_unhealthy_devices_count_as_capacity_only(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0", "MIG-1", "MIG-2").offer("MIG-0", "MIG-1", "MIG-2", unhealthy=("MIG-3",)).push()

    eventually(lambda: bench.api.allocatable(MIG) == ("4", "3"), "4/3")


def test_a_dead_plugin_leaves_n_of_zero_then_zero_and_the_key_stays(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, endpoint_grace_seconds=0.4))
    plugin = bench.plugin("MIG-0", "MIG-1")
    plugin.stop()

    eventually(lambda: bench.api.allocatable(MIG) == ("2", "0"), "2/0")
    assert bench.offered() == [], "absent from pod-resources at once"
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "0/0 after the grace period")
    plugin.offer("MIG-9").serve().register()
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "and back")


def test_numbers_written_by_others_are_gone_at_the_next_tick(bench: KubeletBench) -> None:
    bench.kubelet(tick_seconds=0.3)
    bench.plugin("MIG-0")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "1/1")

    both = {"capacity": {"cpu": "8", MIG: "5", "example.com/d": "3"}, "allocatable": {"cpu": "8", MIG: "5"}}
    bench.api.change_node(both)
    assert bench.api.allocatable(MIG) == ("5", "5")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "reverted")
    assert bench.api.allocatable("example.com/d") == ("3", "3"), "what no plugin offers stays"


def test_a_right_number_written_by_others_is_left_alone(bench: KubeletBench) -> None:
    bench.kubelet(tick_seconds=0.2, timings=replace(QUICK, lease_renew_seconds=0))
    plugin = bench.plugin("MIG-0")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "1/1")
    plugin.offer("MIG-0", "MIG-1").push()
    eventually(lambda: len(bench.offered()) == 2, "taken")
    assert bench.api.node is not None
    status = bench.api.node["status"]
    bench.api.change_node({key: {**status[key], MIG: "2"} for key in ("capacity", "allocatable")})
    patches, leases = len(bench.api.node_patches), bench.api.leases

    eventually(lambda: bench.api.leases > leases + 2, "ticks went by")
    assert len(bench.api.node_patches) == patches
    assert bench.api.allocatable(MIG) == ("2", "2")


def test_the_manifests_ordinary_resources_stay(bench: KubeletBench) -> None:
    bench.api = FakeClusterApi(node(capacity={"cpu": "192", "example.com/d": "3", "nvidia.com/gpu": "8"}))
    bench.kubelet()
    eventually(lambda: bench.api.node_patches, "a first tick")

    assert bench.api.allocatable("cpu") == ("192", "192")
    assert bench.api.allocatable("example.com/d") == ("3", "3")
    assert bench.api.allocatable("nvidia.com/gpu") == ("0", "0"), "a GPU resource without a plugin is a dump's leftover"


def test_the_node_becomes_ready(bench: KubeletBench) -> None:
    bench.kubelet()
    eventually(lambda: bench.api.node_patches, "a first tick")
    assert bench.api.node is not None
    status = bench.api.node["status"]

    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
    assert status["nodeInfo"]["kubeletVersion"] == "v1.36.3"
    assert [address["type"] for address in status["addresses"]] == ["InternalIP", "Hostname"]


def test_empty_facts_of_the_machine_are_filled_in(bench: KubeletBench) -> None:
    raw = node()
    raw["status"]["nodeInfo"] = {"osImage": "", "kernelVersion": "5.15.0"}
    bench.api = FakeClusterApi(raw)
    bench.kubelet()
    eventually(lambda: bench.api.node_patches, "a first tick")
    assert bench.api.node is not None
    info = bench.api.node["status"]["nodeInfo"]

    assert (info["osImage"], info["kernelVersion"]) == ("gpuplan sandbox", "5.15.0")


def test_a_node_that_comes_later_is_waited_for(bench: KubeletBench) -> None:
    bench.api.node, late = None, bench.api.node
    bench.kubelet()
    bench.wait_serving()
    bench.api.node = late
    bench.api.change_node({})

    eventually(lambda: bench.api.node_patches, "the tick follows")


def test_a_tick_that_the_api_missed_is_made_up_for(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, endpoint_grace_seconds=0.1))
    plugin = bench.plugin("MIG-0")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "1"), "1/1")
    bench.api.reachable = False
    plugin.stop()
    eventually(lambda: bench.api.refused_node_patches > 1, "0/0 could not be written")
    bench.api.reachable = True

    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "0/0 after all")


def test_a_tick_is_its_period_times_one_to_one_point_zero_four(bench: KubeletBench) -> None:
    kubelet = bench.kubelet(tick_seconds=60)
    eventually(lambda: bench.api.leases == 1, "a first tick")
    ticks = NodeTicks(kubelet.parts, 10, new_node=False, expired=lambda: None)
    pauses = [ticks.tick() for _ in range(200)]

    assert all(10 <= pause <= 10.4 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.3
    assert bench.api.leases == 2, "the Lease has its own period"
