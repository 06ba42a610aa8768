"""The stand-in of NVIDIA's device plugin on one simulated node, fact by fact."""

import pytest

from sandbox.nvidia_plugin.mps_daemon import DEFAULT
from tests.sandbox.kubelet import builders
from tests.sandbox.kubelet.conftest import root
from tests.sandbox.nvidia_plugin.bench import PLAIN, SHARED, WHOLE, BothPrograms, mps, node, shares

__all__ = ["node", "root"]  # fixtures


def test_whole_gpus_are_offered_by_uuid_on_a_socket_of_the_resource(node: BothPrograms) -> None:
    node.start(PLAIN).offers(WHOLE, *node.uuids)
    assert (node.bench.paths.plugin_dir / "nvidia-gpu.sock").exists()
    assert node.modes() == {DEFAULT}


@pytest.mark.parametrize(("more", "resource"), [("", WHOLE), ("renameByDefault: true, ", SHARED)])
def test_replicas_are_offered_under_the_chosen_name(node: BothPrograms, more: str, resource: str) -> None:
    node.start(mps(4, more)).offers(resource, *shares(node, 4))
    assert list(node.plugin.resources) == [resource]
    assert (node.bench.paths.plugin_dir / f"nvidia-{resource.partition('/')[2]}.sock").exists()


def test_new_content_is_not_read_until_a_signal(node: BothPrograms) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.text = PLAIN
    node.wait(1000)
    assert node.plugin.loads == 1
    node.plugin.sighup(node.now)
    node.wait(1)
    node.offers(WHOLE, *node.uuids)


def test_a_signal_takes_every_resource_off_before_it_reads_the_config(node: BothPrograms) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.text = mps(1)
    node.plugin.sighup(node.now)
    node.offers(WHOLE)
    assert node.plugin.loads == 1
    node.wait(1)
    assert not node.plugin.running
    assert "replicas: 1 is less than the minimum of 2" in str(node.plugin.ended)
    node.offers(WHOLE)
    assert not list(node.bench.paths.plugin_dir.glob("nvidia-*.sock"))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("flags: {migStrategy: mixed}\n" + mps(2), "using --mig-strategy=mixed is not supported with MPS"),
        ("flags: {migStrategy: both}\n", "unknown MIG strategy: both"),
    ],
)
def test_flags_that_it_refuses(node: BothPrograms, text: str, refusal: str) -> None:
    node.start(text)
    assert refusal in str(node.plugin.ended)


def test_without_a_daemon_it_offers_nothing_and_looks_again_after_30_seconds(node: BothPrograms) -> None:
    node.text = mps(2)
    node.plugin.start(0)
    node.plugin.step(29)
    assert (node.plugin.running, node.plugin.loads, node.plugin.resources) == (True, 1, {})
    node.daemon.start(29)
    node.plugin.step(30)
    node.offers(WHOLE, *shares(node, 2))


def test_a_config_of_another_resource_waits_for_a_daemon_that_never_comes(node: BothPrograms) -> None:
    node.start("sharing: {mps: {resources: [{name: mig-1g.10gb, replicas: 2}]}}")
    for _ in range(3):
        node.wait(30)
    assert (node.plugin.running, node.plugin.loads, node.plugin.resources) == (True, 4, {})


def test_a_new_kubelet_is_registered_with(node: BothPrograms) -> None:
    node.start(PLAIN).offers(WHOLE, *node.uuids)
    node.bench.kubelets[0].kill()
    node.bench.kubelet()
    node.bench.wait_serving()
    node.wait(0)
    node.offers(WHOLE, *node.uuids)
    assert node.plugin.loads == 2


def test_what_a_container_gets(node: BothPrograms) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.bench.run(builders.pod("one", containers=[builders.container(more={WHOLE: 1})]))
    node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 1})]))
    started = [record.request.options for kind, record in node.bench.hooks.calls if kind == "started"]
    assert [options.env["CUDA_MPS_PIPE_DIRECTORY"] for options in started] == ["/mps/nvidia.com/gpu/pipe"] * 2
    assert sorted(options.env["NVIDIA_VISIBLE_DEVICES"] for options in started) == sorted(node.uuids)  # spread
    mounts = {mount.container_path: mount.host_path for mount in started[0].mounts}
    assert mounts == {"/mps/nvidia.com/gpu/pipe": str(node.pipe()), "/dev/shm": str(node.mps_root / "shm")}


def test_two_replicas_in_one_container_are_refused(node: BothPrograms) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    pod = node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 2})]), "Failed")
    assert "maximum request size for shared resources is 1; found 2" in pod["status"]["message"]


def test_two_replicas_in_one_container_where_the_config_allows_them(node: BothPrograms) -> None:
    node.start(mps(4, "failRequestsGreaterThanOne: false, ")).offers(WHOLE, *shares(node, 4))
    node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 2})]))
