"""The stand-ins of NVIDIA's device plugin and MPS control daemon on one simulated node, fact by fact."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from partitioning.models import GpuModel, known_models
from sandbox.driver.machine import GpuOptions, create, observe
from sandbox.mps import clients
from sandbox.nvidia_plugin.mps_daemon import DEFAULT, EXCLUSIVE_PROCESS, MpsControlDaemon, tell
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from tests.sandbox.kubelet import builders
from tests.sandbox.kubelet.conftest import Bench, root
from tests.waiting import eventually

__all__ = ["root"]  # a fixture
WHOLE, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PLAIN = "version: v1\n"


def mps(replicas: int, more: str = "") -> str:
    return f"version: v1\nsharing: {{mps: {{{more}resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"


def model(key: str) -> GpuModel:
    return next(model for model in known_models() if model.key == key)


class Node:
    """Both programs and their one config file, on a kubelet."""

    def __init__(self, root: Path, *options: GpuOptions, key: str = "H100-80GB") -> None:
        self.machine, self.mps_root = root / "machine.json", root / "m"
        create(self.machine, [(model(key), option) for option in options or ({}, {})], "seed")
        self.text = PLAIN
        self.now = 0.0
        self.bench = Bench(root)
        self.daemon = MpsControlDaemon(self.machine, lambda: self.text, self.mps_root)
        self.plugin = NvidiaDevicePlugin(self.machine, lambda: self.text, root, self.mps_root)
        self.bench.kubelet()
        self.bench.wait_serving()

    def start(self, text: str) -> "Node":
        self.text = text
        self.daemon.start(self.now)
        self.plugin.start(self.now)
        return self

    def hang_up(self, text: str) -> None:
        self.text = text
        self.daemon.hang_up(self.now)
        self.plugin.hang_up(self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.daemon.step(self.now)
        self.plugin.step(self.now)

    def offers(self, resource: str, *ids: str) -> None:
        eventually(lambda: self.bench.offered(resource) == sorted(ids), f"{resource}", seen=self.seen)

    def seen(self) -> object:
        return self.plugin.resources, self.plugin.ended, self.daemon.ended

    @property
    def uuids(self) -> list[str]:
        return [gpu["uuid"] for gpu in observe(self.machine)["gpus"]]

    def modes(self) -> set[int]:
        return {gpu["compute_mode"] for gpu in observe(self.machine)["gpus"]}

    def pipe(self, resource: str = WHOLE) -> Path:
        return self.mps_root / resource / "pipe"

    def limits(self, resource: str = WHOLE) -> tuple[str, str]:
        memory = tell(self.pipe(resource), command="get_default_device_pinned_mem_limit 0")
        return memory.strip(), tell(self.pipe(resource), command="get_default_active_thread_percentage").strip()

    def close(self) -> None:
        self.plugin.terminate(self.now)
        self.bench.close()


@pytest.fixture
def node(root: Path) -> Iterator[Node]:
    made = Node(root)
    yield made
    made.close()


def shares(node: Node, count: int) -> list[str]:
    return [f"{uuid}::{n}" for uuid in node.uuids for n in range(count)]


# ------------------------------------------------------------------------------------------- the plugin


def test_whole_gpus_are_offered_by_uuid_on_a_socket_of_the_resource(node: Node) -> None:
    node.start(PLAIN).offers(WHOLE, *node.uuids)
    assert (node.bench.paths.plugin_dir / "nvidia-gpu.sock").exists()
    assert node.modes() == {DEFAULT}


@pytest.mark.parametrize(("more", "resource"), [("", WHOLE), ("renameByDefault: true, ", SHARED)])
def test_replicas_are_offered_under_the_chosen_name(node: Node, more: str, resource: str) -> None:
    node.start(mps(4, more)).offers(resource, *shares(node, 4))
    assert list(node.plugin.resources) == [resource]
    assert (node.bench.paths.plugin_dir / f"nvidia-{resource.partition('/')[2]}.sock").exists()


def test_new_content_is_not_read_until_a_signal(node: Node) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.text = PLAIN
    node.wait(1000)
    assert node.plugin.loads == 1
    node.plugin.hang_up(node.now)
    node.wait(1)
    node.offers(WHOLE, *node.uuids)


def test_a_signal_takes_every_resource_off_before_it_reads_the_config(node: Node) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.text = mps(1)
    node.plugin.hang_up(node.now)
    node.offers(WHOLE)
    assert node.plugin.loads == 1
    node.wait(1)
    assert not node.plugin.running
    assert "number of replicas must be >= 2" in str(node.plugin.ended)
    node.offers(WHOLE)
    assert not list(node.bench.paths.plugin_dir.glob("nvidia-*.sock"))


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("flags: {migStrategy: mixed}\n" + mps(2), "using --mig-strategy=mixed is not supported with MPS"),
        ("flags: {migStrategy: both}\n", "unknown MIG strategy: both"),
    ],
)
def test_flags_that_it_refuses(node: Node, text: str, refusal: str) -> None:
    node.start(text)
    assert refusal in str(node.plugin.ended)


def test_without_a_daemon_it_offers_nothing_and_looks_again_after_30_seconds(node: Node) -> None:
    node.text = mps(2)
    node.plugin.start(0)
    node.plugin.step(29)
    assert (node.plugin.running, node.plugin.loads, node.plugin.resources) == (True, 1, {})
    node.daemon.start(29)
    node.plugin.step(30)
    node.offers(WHOLE, *shares(node, 2))


def test_a_config_of_another_resource_waits_for_a_daemon_that_never_comes(node: Node) -> None:
    node.start("sharing: {mps: {resources: [{name: mig-1g.10gb, replicas: 2}]}}")
    for _ in range(3):
        node.wait(30)
    assert (node.plugin.running, node.plugin.loads, node.plugin.resources) == (True, 4, {})


def test_a_new_kubelet_is_registered_with(node: Node) -> None:
    node.start(PLAIN).offers(WHOLE, *node.uuids)
    node.bench.kubelets[0].kill()
    node.bench.kubelet()
    node.bench.wait_serving()
    node.wait(0)
    node.offers(WHOLE, *node.uuids)
    assert node.plugin.loads == 2


def test_a_registration_that_the_kubelet_loses_comes_back_with_a_signal_only(node: Node) -> None:
    node.plugin.loses = 1
    node.start(PLAIN).offers(WHOLE)
    node.wait(1000)
    node.offers(WHOLE)
    assert (list(node.plugin.resources), node.plugin.loads) == ([WHOLE], 1)
    assert (node.bench.paths.plugin_dir / "nvidia-gpu.sock").exists()
    node.plugin.hang_up(node.now)
    node.wait(1)
    node.offers(WHOLE, *node.uuids)


def test_what_a_container_gets(node: Node) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    node.bench.run(builders.pod("one", containers=[builders.container(more={WHOLE: 1})]))
    node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 1})]))
    started = [record.request.options for kind, record in node.bench.hooks.calls if kind == "started"]
    assert [options.env["CUDA_MPS_PIPE_DIRECTORY"] for options in started] == ["/mps/nvidia.com/gpu/pipe"] * 2
    assert sorted(options.env["NVIDIA_VISIBLE_DEVICES"] for options in started) == sorted(node.uuids)  # spread
    mounts = {mount.container_path: mount.host_path for mount in started[0].mounts}
    assert mounts == {"/mps/nvidia.com/gpu/pipe": str(node.pipe()), "/dev/shm": str(node.mps_root / "shm")}


def test_two_replicas_in_one_container_are_refused(node: Node) -> None:
    node.start(mps(4)).offers(WHOLE, *shares(node, 4))
    pod = node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 2})]), "Failed")
    assert "maximum request size for shared resources is 1; found 2" in pod["status"]["message"]


def test_two_replicas_in_one_container_where_the_config_allows_them(node: Node) -> None:
    node.start(mps(4, "failRequestsGreaterThanOne: false, ")).offers(WHOLE, *shares(node, 4))
    node.bench.run(builders.pod("two", containers=[builders.container(more={WHOLE: 2})]))


# ------------------------------------------------------------------------------------- the MPS daemon


@pytest.mark.parametrize(
    ("replicas", "limits"),
    [(2, ("40779M", "50.0")), (3, ("27186M", "33.0")), (7, ("11651M", "14.0")), (48, ("1699M", "2.0"))],
)
def test_limits_are_equal_shares(root: Path, replicas: int, limits: tuple[str, str]) -> None:
    node = Node(root, {"memory_mib": 81559})
    try:
        node.start(mps(replicas))
        memory, threads = node.limits()
        shown = f"{int(limits[0][:-1]) >> 10}G"  # the command shows whole GB
        assert (memory, threads) == (shown, limits[1])
    finally:
        node.close()


def test_a_daemon_shows_that_it_is_ready_and_makes_its_gpus_exclusive(node: Node) -> None:
    node.start(mps(2))
    assert (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}


def test_without_mps_it_is_ready_all_the_same(node: Node) -> None:
    node.start(PLAIN)
    assert (node.mps_root / ".ready").exists()
    assert not node.pipe().exists()


@pytest.mark.parametrize(("key", "most"), [("H100-80GB", 48), ("V100-32GB", 16)])
def test_more_replicas_than_clients_end_it_and_the_plugin_waits_for_ever(root: Path, key: str, most: int) -> None:
    node = Node(root, {}, key=key)
    try:
        node.start(mps(most + 1))
        assert f"exceeded: {most + 1} > {most}" in str(node.daemon.ended)
        node.wait(60)
        assert node.plugin.running
        assert node.plugin.resources == {}
        node.start(mps(most))
        assert node.daemon.ended is None
    finally:
        node.close()


def test_other_replicas_keep_the_old_limits_until_a_signal(node: Node) -> None:
    node.start(mps(2))
    before = node.limits()
    node.text = mps(4)
    node.plugin.hang_up(node.now)
    node.wait(1000)
    node.offers(WHOLE, *shares(node, 4))
    assert node.limits() == before
    node.daemon.hang_up(node.now)
    assert node.limits()[1] == "25.0"


def test_a_stop_waits_for_the_last_client_and_restores_the_modes(node: Node) -> None:
    node.start(mps(2))
    clients.connect(node.pipe(), 7, node.uuids[0])
    node.hang_up(PLAIN)
    node.wait(1000)
    assert not (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}
    clients.disconnect(node.pipe(), 7)
    node.wait(1)
    assert node.modes() == {DEFAULT}
    assert not (node.pipe().parent / ".started").exists()
    assert (node.mps_root / ".ready").exists()


def test_a_kill_leaves_files_and_modes(node: Node) -> None:
    node.start(mps(2))
    node.daemon.kill()
    assert (node.mps_root / ".ready").exists()
    assert (node.pipe().parent / ".started").exists()
    assert node.modes() == {EXCLUSIVE_PROCESS}
    node.plugin.hang_up(node.now)
    node.wait(1)
    assert node.plugin.resources == {}  # it asks the daemon, not the files


def test_a_daemon_that_died_alone_leaves_the_gpus_exclusive(node: Node) -> None:
    node.start(mps(2))
    tell(node.pipe(), command="quit")
    node.daemon.hang_up(node.now)
    assert "error sending quit message" in str(node.daemon.ended)
    assert node.modes() == {EXCLUSIVE_PROCESS}
    assert node.plugin.resources  # nothing checks the daemon later


def test_a_gpu_in_mig_mode_ends_the_daemon_at_its_first_retry(root: Path) -> None:
    node = Node(root, {}, {"mig_enabled": True})
    try:
        node.start(mps(2))
        assert node.daemon.running
        assert not (node.mps_root / ".ready").exists()
        node.wait(30)
        assert "error sending quit message" in str(node.daemon.ended)
    finally:
        node.close()
