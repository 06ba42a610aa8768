"""The whole plugin against a strict kubelet: when a config is in force, and what a bad or missing one leaves so."""

import re
import threading
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import grpc
import pytest

from nodeagent.device_plugin.service import PluginService
from nodeagent.handover.config import PluginConfig, write_config
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import ALL, GPU_C, MIG, WHOLE, messages, mig, refusal
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet
from tests.waiting import eventually


def test_a_withdrawal_is_confirmed_only_after_running_allocates(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    first = node.load(PluginConfig.of([mig(0), mig(1)]))
    withdrawn = PluginConfig.of([mig(1)], ["MIG-0"])
    with plugin.service._lists.allocating(MIG, ["MIG-0"]):  # an Allocate that takes its time
        write_config(node.files, withdrawn)
        eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "kubelet.healthy(MIG) == {'MIG-1'}")
        assert "is being withdrawn" in refusal(lambda: kubelet.allocate(MIG, ids={"MIG-0"}))
        loaded = node.loaded()
        assert loaded is not None
        assert loaded.hash == first.hash
    node.load(withdrawn)


def test_a_resource_that_fell_to_nothing_stays_registered(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    plugin = start_plugin()
    node.load(PluginConfig.of([mig(0)]))
    empty = node.load(PluginConfig.of([]))
    assert empty.registered == {MIG: True}
    eventually(lambda: kubelet.resources[MIG].lists[-1] == frozenset(), "the empty list at the kubelet")
    plugin.stop()
    eventually(lambda: kubelet.open_streams(MIG) == 0, "the end of the stream")
    start_plugin()
    eventually(lambda: kubelet.open_streams(MIG) == 1, "one open stream")  # and over a restart of the plugin
    eventually(lambda: (node.loaded() or empty).boot_token != empty.boot_token, "another plugin process in loaded.json")
    assert kubelet.resources[MIG].lists[-1] == frozenset()


def test_after_a_restart_of_the_node_mig_devices_wait_for_the_agent(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    write_config(node.files, replace(ALL, boot_id="one"))
    start_plugin(boot_id="two")
    eventually(lambda: kubelet.healthy(WHOLE) == {GPU_C}, "the whole GPU at the kubelet")
    node.load(replace(ALL, boot_id="one"))
    unhealthy = {"MIG-0": "Unhealthy", "MIG-1": "Unhealthy"}
    eventually(lambda: kubelet.resources[MIG].devices == unhealthy, "the unhealthy devices at the kubelet")
    assert "the node was restarted" in refusal(lambda: kubelet.allocate(MIG, ids={"MIG-0"}))

    write_config(node.files, replace(ALL, boot_id="two"))

    eventually(lambda: kubelet.healthy(MIG) == {"MIG-0", "MIG-1"}, "kubelet.healthy(MIG) == {'MIG-0', 'MIG-1'}")


def test_a_config_that_could_not_be_put_in_force_is_not_confirmed_and_tried_again(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = start_plugin(failed_seconds=0.01)
    first = node.load(PluginConfig.of([mig(0), mig(1)]))
    confirmed: list[str] = []
    claim = plugin.service._mps_health.claim

    def fails_three_times(gpus: Collection[str]) -> None:
        loaded = node.loaded()
        confirmed.append(loaded.hash if loaded else "")
        if len(confirmed) <= 3:
            raise OSError("the MPS directory cannot be read")
        claim(gpus)

    monkeypatch.setattr(plugin.service._mps_health, "claim", fails_three_times)
    node.load(PluginConfig.of([mig(1)], ["MIG-0"]))

    assert confirmed == [first.hash] * 4
    eventually(lambda: kubelet.healthy(MIG) == {"MIG-1"}, "the list at the kubelet")


def reports(node: PluginNode, sentence: str) -> bool:
    return sentence in messages(node.loaded())


def test_a_bad_config_leaves_the_last_good_one_in_force(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    good = node.load(PluginConfig.of([mig(0)]))
    text = node.files.config.read_text()
    for bad, sentence in (("{", "config.json: Invalid JSON"), (text.replace("9728", "1"), "config.json: hash is")):
        node.files.config.write_text(bad)
        eventually(partial(reports, node, sentence), "the problem in loaded.json")
        assert (node.loaded() or good).hash == good.hash
        assert kubelet.healthy(MIG) == {"MIG-0"}
    node.files.config.unlink()
    eventually(
        lambda: "config.json is gone" in messages(node.loaded()), "'config.json is gone' in messages(node.loaded())"
    )
    assert kubelet.allocate(MIG).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-0"}
    node.load(PluginConfig.of([mig(0), mig(1)]))
    assert messages(node.loaded()) == ""


def test_every_config_file_is_answered_also_one_with_the_old_text(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    first = node.load(ALL)
    written = node.files.loaded.stat().st_mtime_ns
    write_config(node.files, ALL)
    eventually(lambda: node.files.loaded.stat().st_mtime_ns > written, "a new loaded.json")
    assert node.loaded() == first


def test_without_a_config_the_plugin_reports_that_it_runs(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    eventually(node.loaded, "loaded.json")
    loaded = node.loaded()
    assert loaded is not None
    assert (loaded.hash, loaded.registered, loaded.errors) == ("", {}, ())
    assert re.fullmatch(r"[0-9a-f-]{36}", loaded.boot_token)


def test_a_pass_that_fails_is_not_the_end_of_the_plugin(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    judge = PluginService._judge_daemons

    def fails_once(service: PluginService) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a broken world")
        judge(service)

    monkeypatch.setattr(PluginService, "_judge_daemons", fails_once)
    start_plugin(failed_seconds=0.01)

    node.load(PluginConfig.of([mig(0)]))
    assert failed.is_set()


def test_no_container_starts_with_what_a_process_of_an_earlier_pod_still_has(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    """Such ids are no part of the config's hash: it is loaded all the same."""
    start_plugin()
    node.load(PluginConfig.of([mig(0), mig(1)]))
    kubelet.allocate(MIG, 2)
    config = PluginConfig.of([mig(0), mig(1)], unhealthy=["MIG-0"])
    node.load(config)
    kubelet.pre_start(MIG, "MIG-0", "MIG-1")

    write_config(node.files, replace(config, occupied=("MIG-0",)))
    eventually(lambda: not _starts(kubelet, "MIG-0"), "no start with a device that a process still has")
    with pytest.raises(grpc.RpcError, match=r"still has MIG-0\. This is tried again\.") as refused:
        kubelet.pre_start(MIG, "MIG-0", "MIG-1")
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    kubelet.pre_start(MIG, "MIG-1")

    write_config(node.files, replace(config, occupied=()))
    eventually(lambda: _starts(kubelet, "MIG-0"), "a start with the device that nothing has any more")


def _starts(kubelet: FakeKubelet, *ids: str) -> bool:
    try:
        kubelet.pre_start(MIG, *ids)
    except grpc.RpcError:
        return False
    return True
