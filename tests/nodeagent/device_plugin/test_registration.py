"""One stream per resource, whatever kubelet and plugin do to each other."""

import itertools
import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kube.backoff import Backoff
from kube.kubelet_api.paths import KubeletPaths
from nodeagent.device_plugin.device_lists import DeviceLists
from nodeagent.device_plugin.registration import Link, Registrar, RegistrationTiming
from nodeagent.device_plugin.server import Endpoint, socket_name
from nodeagent.handover.config import Device, DeviceKind, Loaded, PluginConfig, write_config
from tests.nodeagent.device_plugin.conftest import PluginNode, Start
from tests.nodeagent.device_plugin.devices import messages
from tests.nodeagent.device_plugin.fake_kubelet import FakeKubelet, Resource
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MIG = "nvidia.com/mig-1g.10gb"
WHOLE = "nvidia.com/gpu"
CONFIG = PluginConfig.of(
    [
        Device(id="MIG-0", resource=MIG, gpu="GPU-a", kind=DeviceKind.MIG),
        Device(id="GPU-b", resource=WHOLE, gpu="GPU-b", kind=DeviceKind.WHOLE),
    ]
)


def loaded_of(node: PluginNode) -> Loaded:
    eventually(node.loaded, "a first loaded.json")
    loaded = node.loaded()
    assert loaded is not None
    return loaded


def sockets(node: PluginNode) -> list[Path]:
    """Those of our MIG resource."""
    found = (node.kubelet_dir / "device-plugins").glob("gpuplan-mig-1g.10gb-????????.sock")
    return sorted(path for path in found if path.is_socket())


def registered_for(kubelet: FakeKubelet, count: int) -> bool:
    return len(kubelet.resources[MIG].connections) == count and settled(kubelet)


def settled(kubelet: FakeKubelet) -> bool:
    return kubelet.healthy(MIG) == {"MIG-0"} and kubelet.healthy(WHOLE) == {"GPU-b"}


def test_kubelet_comes_after_the_plugin(node: PluginNode, start_plugin: Start) -> None:
    start_plugin()
    write_config(node.files, CONFIG)
    eventually(lambda: node.loaded() and loaded_of(node).hash == CONFIG.hash, "loaded.json of the config")
    loaded = loaded_of(node)
    assert loaded.registered == {MIG: False, WHOLE: False}
    kubelet = FakeKubelet(node.kubelet_dir)
    kubelet.start()
    node.load(CONFIG)
    assert settled(kubelet)
    kubelet.stop()


def test_kubelet_restarts(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(CONFIG)
    for _ in range(3):
        kubelet.stop()
        eventually(lambda: not any(loaded_of(node).registered.values()), "no resource registered")
        kubelet.start()  # removes our sockets, as a kubelet does
        eventually(lambda: settled(kubelet), "one stream of each resource")
        eventually(lambda: all(loaded_of(node).registered.values()), "every resource registered")
        eventually(lambda: [kubelet.open_streams(name) for name in (MIG, WHOLE)] == [1, 1], "one open stream of each")
        assert kubelet.overlaps == []


def test_kubelet_ends_a_stream(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(CONFIG)
    first = kubelet.resources[MIG].newest
    ended = time.monotonic()
    kubelet.end_stream(MIG)
    eventually(
        lambda: kubelet.resources[MIG].newest is not first and settled(kubelet),
        "kubelet.resources[MIG].newest is not first and settled(kubelet)",
    )
    assert time.monotonic() - ended >= 0.2  # not before the kubelet has dealt with the end of the old one
    assert kubelet.overlaps == []
    assert len(kubelet.resources[WHOLE].connections) == 1  # the other resource was left alone


def test_sockets_removed_and_stream_ended(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(CONFIG)
    (path,) = sockets(node)
    path.unlink()
    kubelet.end_stream(MIG)
    eventually(
        lambda: len(kubelet.resources[MIG].connections) == 2 and settled(kubelet),
        "len(kubelet.resources[MIG].connections) == 2 and settled(kubelet)",
    )
    eventually(lambda: [found != path for found in sockets(node)] == [True], "one socket, of another name")


def test_sockets_of_earlier_registrations_are_removed(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    """Of this process, and of one that was killed; those of other resources and of others stay."""
    folder = node.kubelet_dir / "device-plugins"
    others = [folder / socket_name(f"{MIG}.me", "0a1b2c3d"), folder / "gpuplan-mig-1g.10gb-notours.sock"]
    for path in (folder / socket_name(MIG, "0a1b2c3d"), *others):
        path.touch()
    start_plugin()
    node.load(CONFIG)
    for count in range(2, 5):
        kubelet.end_stream(MIG)
        eventually(partial(registered_for, kubelet, count), f"registration number {count}")

    assert len(sockets(node)) == 1
    assert all(path.exists() for path in others)
    assert len(str(sockets(node)[0])) <= 107


def test_a_busy_kubelet_gets_time_to_open_the_stream(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    """Registered again meanwhile it would have two streams, and the end of one takes the devices away."""
    kubelet.opens_after_seconds = 1.0
    start_plugin(verify_seconds=0.2)
    node.load(CONFIG)

    assert settled(kubelet)
    assert [len(kubelet.resources[name].connections) for name in (MIG, WHOLE)] == [1, 1]


def test_a_stream_that_does_not_come_is_registered_for_again(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    kubelet.opens_after_seconds = 3600.0
    start_plugin(verify_seconds=0.2, stream_seconds=0.5)
    write_config(node.files, CONFIG)
    eventually(lambda: len(kubelet.resources.get(MIG, Resource()).connections) >= 2, "a second registration")
    kubelet.opens_after_seconds = 0.0
    node.load(CONFIG)

    assert settled(kubelet)


def test_a_registration_that_does_not_show_is_repeated(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    kubelet.hidden.add(MIG)
    start_plugin()
    write_config(node.files, CONFIG)
    eventually(
        lambda: MIG in kubelet.resources and len(kubelet.resources[MIG].connections) >= 2,
        "MIG in kubelet.resources and len(kubelet.resources[MIG].connections) >= 2",
    )
    loaded = loaded_of(node)
    assert not loaded.registered[MIG]
    kubelet.hidden.clear()
    node.load(CONFIG)
    assert kubelet.overlaps == []
    assert len(kubelet.resources[WHOLE].connections) == 1


def test_what_breaks_after_the_first_verification_is_found_by_the_second(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin(verify_again_seconds=0.3)
    node.load(CONFIG)
    kubelet.hidden.add(MIG)
    eventually(lambda: len(kubelet.resources[MIG].connections) >= 2, "len(kubelet.resources[MIG].connections) >= 2")
    kubelet.hidden.clear()
    eventually(
        lambda: settled(kubelet) and all(loaded_of(node).registered.values()),
        "settled(kubelet) and all(loaded_of(node).registered.values())",
    )


def test_a_resource_of_which_nothing_is_advertised_is_left_to_another_plugin(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin(verify_again_seconds=0.2)
    node.load(CONFIG)
    node.load(PluginConfig.of(CONFIG.devices, ["MIG-0"]))
    eventually(lambda: kubelet.healthy(MIG) == set(), "kubelet.healthy(MIG) == set()")
    kubelet.foreign[MIG] = {"MIG-0::0"}
    kubelet.end_stream(MIG)  # as a kubelet does when another plugin registers
    eventually(
        lambda: any("another device plugin" in problem.message for problem in loaded_of(node).errors),
        "any('another device plugin' in problem.message for problem in loaded_of(node).errors)",
    )
    assert len(kubelet.resources[MIG].connections) == 1
    kubelet.foreign.clear()
    node.load(CONFIG)
    eventually(lambda: settled(kubelet), "one stream of each resource")


def test_registrations_that_cannot_be_verified_are_reported_after_a_while(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    directory = kubelet.paths.pod_resources_socket.parent
    directory.rename(directory.with_name("not-mounted"))
    start_plugin(verify_again_seconds=0.2, unanswered_seconds=0.5)
    node.load(CONFIG)

    eventually(
        lambda: "registrations are not verified" in messages(loaded_of(node)),
        "'registrations are not verified' in messages(loaded_of(node))",
    )
    assert str(kubelet.paths.pod_resources_socket) in messages(loaded_of(node))

    directory.with_name("not-mounted").rename(directory)
    eventually(lambda: loaded_of(node).errors == (), "loaded_of(node).errors == ()")


@pytest.mark.parametrize("served", [True, False])
def test_our_ids_that_the_kubelet_still_shows_are_anothers_only_with_its_socket(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start, served: bool
) -> None:
    """NVIDIA's plugin gives the same ids; without it the kubelet has missed our list, and must get it again."""
    start_plugin(verify_again_seconds=0.2)
    node.load(CONFIG)
    node.load(PluginConfig.of(CONFIG.devices, ["MIG-0"]))
    kubelet.foreign[MIG] = {"MIG-0"}
    with socket.socket(socket.AF_UNIX) as rival:
        rival.bind(str(node.kubelet_dir / "device-plugins" / "nvidia-mig-1g.10gb.sock"))
        if served:
            rival.listen(8)
        kubelet.end_stream(MIG)
        if served:
            eventually(
                lambda: "another device plugin serves it" in messages(loaded_of(node)),
                "'another device plugin serves it' in messages(loaded_of(node))",
            )
            assert len(kubelet.resources[MIG].connections) == 1
        else:
            eventually(
                lambda: len(kubelet.resources[MIG].connections) > 2, "len(kubelet.resources[MIG].connections) > 2"
            )


def test_a_name_that_the_kubelet_refuses_harms_no_other(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    bad = Device(id="x", resource="nvidia.com/mig-1g.10gb+me", gpu="GPU-a", kind=DeviceKind.MIG)
    write_config(node.files, PluginConfig.of([*CONFIG.devices, bad]))
    eventually(lambda: settled(kubelet), "one stream of each resource")
    eventually(
        lambda: any("is invalid" in problem.message for problem in loaded_of(node).errors),
        "any('is invalid' in problem.message for problem in loaded_of(node).errors)",
    )
    loaded = loaded_of(node)
    assert {problem.resource for problem in loaded.errors} == {bad.resource}


def test_a_socket_path_that_is_too_long_is_reported(
    node: PluginNode, kubelet: FakeKubelet, start_plugin: Start
) -> None:
    start_plugin()
    long = Device(id="x", resource=f"nvidia.com/{'x' * 90}", gpu="GPU-a", kind=DeviceKind.MIG)
    write_config(node.files, PluginConfig.of([*CONFIG.devices, long]))
    eventually(
        lambda: any("longer than 107" in p.message for p in loaded_of(node).errors),
        "any('longer than 107' in p.message for p in loaded_of(node).errors)",
    )
    eventually(lambda: settled(kubelet), "one stream of each resource")


def test_many_quick_changes_end_in_the_last_one(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    start_plugin()
    node.load(CONFIG)
    for count in range(1, 40):
        devices = [Device(id=f"MIG-{n}", resource=MIG, gpu="GPU-a", kind=DeviceKind.MIG) for n in range(count)]
        last = PluginConfig.of(devices)
        write_config(node.files, last)
    node.load(last)
    eventually(lambda: kubelet.healthy(MIG) == {f"MIG-{n}" for n in range(39)}, "the last list")
    eventually(lambda: kubelet.healthy(WHOLE) == set(), "no whole GPU at the kubelet")
    assert len(kubelet.resources[MIG].connections) == 1


def test_restarts_of_the_plugin_in_place(node: PluginNode, kubelet: FakeKubelet, start_plugin: Start) -> None:
    for _ in range(5):
        plugin = start_plugin()
        node.load(CONFIG)
        assert settled(kubelet)
        threading.Thread(target=plugin.service.stop).start()
        plugin.stop()
    assert kubelet.overlaps == []


def test_socket_names_are_short_and_differ() -> None:
    assert socket_name(MIG, "1") == "gpuplan-mig-1g.10gb-1.sock"
    assert socket_name("aliyun.com/gpu-mem", "2") == "gpuplan-aliyun.com-gpu-mem-2.sock"


class Served:
    """A stream that has sent its list, of a resource that is registered."""

    resource = MIG

    def __init__(self) -> None:
        self.ended = 0

    def pushed(self) -> bool:
        return True

    def streams(self) -> tuple[object, ...]:
        return (object(),)

    def end_streams(self) -> None:
        self.ended += 1


def test_a_registration_is_verified_for_as_long_as_it_lives_and_made_again_after_two_misses(tmp_path: Path) -> None:
    lists, timing, now = DeviceLists(), RegistrationTiming(), 0.0
    lists.replace(CONFIG)
    registrar = Registrar(
        KubeletPaths(tmp_path), lists, judge=lambda _kubelet: None, on_change=lambda: None, timing=timing
    )
    server = Served()
    link = Link(
        endpoint=cast(Endpoint, SimpleNamespace(server=server)),
        backoff=Backoff(first_seconds=0.1, cap_seconds=5.0),
        due=0.0,
    )
    shown: frozenset[str] = frozenset({"MIG-0"})
    read_at: list[float] = []

    def read_ids() -> Mapping[str, frozenset[str]]:
        read_at.append(now)
        return {MIG: shown}

    def live(seconds: float) -> None:
        nonlocal now
        end = now + seconds
        while now < end:
            now += max(registrar._tend(link, None, read_ids, now), 0.01)

    live(3600)
    assert max(later - earlier for earlier, later in itertools.pairwise(read_at)) <= 31
    shown = frozenset()
    readings = len(read_at)
    while len(read_at) == readings:
        live(0.1)
    live(timing.verify_seconds + 0.2)
    assert (server.ended, link.misses, link.verified) == (0, 1, True)
    shown = frozenset({"MIG-0"})
    live(3600)
    assert server.ended == 0, "one miss"
    shown = frozenset({"another plugin's"})
    live(timing.verify_often_seconds + 2 * timing.verify_seconds + 1)
    assert server.ended > 0, "two misses"
