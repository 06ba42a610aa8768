"""Rules 3 to 5: what Register refuses and with which message, streams that outlive each other, whole lists."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from kube.kubelet_api.paths import KubeletPaths
from tests.e2e.kubelet.bench import KubeletSide, container, pod
from tests.sandbox.kubelet.fakes import INVALID_NAMES, BrokenStream, FakePlugin, WithoutOptions

UNSUPPORTED = 'requested API version "{}" is not supported by kubelet. Supported version is ["v1beta1"]'
NO_DIAL = "failed to dial device plugin: context deadline exceeded"
NEVER_AGAIN_SECONDS = 3.0
NVIDIAS_PAUSE_SECONDS = 0.035
"""From the end of its streams to its registration NVIDIA's device plugin reads its config and the GPUs."""
RESTARTS, SETTLED_SECONDS = 50, 0.5


def refusal(plugin: FakePlugin, **changes: str) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        plugin.register(**changes)
    error: object = caught.value
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.UNKNOWN
    return str(error.details())


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha", ""])
def test_another_version_is_refused(bench: KubeletSide, version: str) -> None:
    assert refusal(bench.plugin("MIG-0"), version=version) == UNSUPPORTED.format(version)


VALID_NAMES = ["nvidia.com/MIG_1g", "nvidia.com/gpu-10gb", "nvidia.com/mig-1c.2g.20gb"]


def test_names_that_are_no_extended_resources_are_refused(bench: KubeletSide) -> None:
    plugin = bench.plugin("MIG-0")
    for name in INVALID_NAMES:
        assert refusal(plugin, resource_name=name) == f'the ResourceName "{name}" is invalid'


@pytest.mark.parametrize("name", VALID_NAMES)
def test_unusual_names_are_accepted(bench: KubeletSide, name: str) -> None:
    bench.plugin("ID-0", resource=name)
    bench.wait_numbers(1, 1, name)


def test_an_endpoint_that_is_not_there_is_refused_after_ten_seconds(bench: KubeletSide) -> None:
    """An absolute path is joined to the folder, so it is not there either."""
    plugin = bench.plugin("MIG-0")
    began = time.monotonic()
    with ThreadPoolExecutor(2) as both:
        refusals = both.map(lambda endpoint: refusal(plugin, endpoint=endpoint), ("missing.sock", str(plugin.socket)))
        assert list(refusals) == [NO_DIAL, NO_DIAL]
    assert 9.5 < time.monotonic() - began < 20


def test_missing_options_are_an_error(bench: KubeletSide) -> None:
    old = WithoutOptions(bench.node.paths.plugin_dir, bench.resource).serve()
    bench.plugins.append(old)
    text = "failed to get device plugin options: rpc error: code = Unimplemented desc = Method not found!"
    assert refusal(old) == text


def test_the_requests_options_are_ignored(bench: KubeletSide) -> None:
    """`FakePlugin.register` claims both options; its own answer has neither."""
    plugin = bench.plugin("MIG-0")
    bench.run(pod(container(devices={bench.resource: 1})))
    assert (plugin.preferred_requests, plugin.pre_started) == ([], [])


def test_a_failed_stream_leaves_the_resource_at_zero(bench: KubeletSide) -> None:
    bench.register(BrokenStream(bench.node.paths.plugin_dir, bench.resource))
    bench.wait_numbers(0, 0)


def test_a_second_registration_leaves_the_old_stream_open(bench: KubeletSide) -> None:
    old = bench.plugin("OLD-0")
    new = bench.plugin("NEW-0", socket_name="second.sock")

    old.push_to(0, "OLD-1")
    bench.wait(lambda: bench.offered() == ["OLD-1"], "the last writer wins, the stale stream too")
    bench.run(pod(container(devices={bench.resource: 1})))
    assert (old.allocated, new.allocated) == ([], [["OLD-1"]]), "Allocate goes to the newest endpoint"


def test_the_end_of_an_older_stream_kills_the_newest_registration(bench: KubeletSide) -> None:
    """Until 1.36. From 1.37 on the newest goes on, and with it what its list said."""
    old = bench.plugin("MIG-0")
    new = bench.plugin("MIG-1", socket_name="second.sock")
    old.stop()
    if bench.by_socket:
        assert_stays(lambda: bench.offered() == ["MIG-1"])
        new.offer("MIG-2").push()
        bench.wait(lambda: bench.offered() == ["MIG-2"], "its next list is taken")
        bench.run(pod(container(devices={bench.resource: 1})))
        assert (new.allocated, new.ended_streams) == ([["MIG-2"]], 0)
        return

    bench.wait(lambda: bench.offered() == [], "all unhealthy")
    bench.wait_numbers(1, 0)
    bench.wait(lambda: new.ended_streams == 1, "the kubelet has closed the newest stream")
    new.offer("MIG-2").push()
    assert_stays(lambda: bench.offered() == [])


ALREADY = "device plugin already connected: {}"


def test_a_socket_that_is_connected_is_not_taken_again(bench: KubeletSide) -> None:
    """From 1.37 on; the refusal takes the connection off the kubelet's list, so that the socket is refused for ever.

    So each registration of ours has a socket of a new name, which the kubelet takes whatever came before.
    """
    if not bench.by_socket:
        pytest.skip("up to 1.36 a socket is taken as often as it comes")
    plugin = bench.plugin("MIG-0")
    path = KubeletPaths(Path("/var/lib/kubelet")).plugin_dir / plugin.socket.name
    assert refusal(plugin) == ALREADY.format(path)

    plugin.end_stream(0)
    assert_stays(lambda: bench.offered() == ["MIG-0"])  # the kubelet has lost sight of it
    assert refusal(plugin.serve()) == ALREADY.format(path)
    bench.plugin("MIG-1", socket_name="new-name.sock")
    bench.run(pod(container(devices={bench.resource: 1})))


@pytest.mark.long
def test_no_registration_is_lost_that_comes_as_late_as_nvidias(bench: KubeletSide) -> None:
    """The kubelet has seen the end of the old stream by then. So nothing heals what it might lose."""
    if bench.side == "stand-in":
        pytest.skip("runs in this process, and may see the end of a stream later than one that is alone")
    plugin = bench.plugin("MIG-0")
    for restart in range(1, RESTARTS + 1):
        plugin.stop()
        time.sleep(NVIDIAS_PAUSE_SECONDS)
        bench.register(plugin)
        bench.wait(lambda: bench.offered() == ["MIG-0"], "it is advertised again")
        assert_stays(lambda: bench.offered() == ["MIG-0"], SETTLED_SECONDS)
        assert plugin.ended_streams == restart, "the kubelet has closed a newer stream with the old one"


def test_the_kubelet_never_redials(bench: KubeletSide) -> None:
    plugin = bench.plugin("MIG-0")
    plugin.end_stream(0)

    bench.wait(lambda: bench.offered() == [], "unhealthy after the stream's end")
    assert_stays(lambda: bench.offered() == [] and len(plugin.streams) == 1)
    plugin.register()
    bench.wait(lambda: bench.offered() == ["MIG-0"], "only Register brings it back")


def test_a_stale_stream_keeps_listing_for_a_stopped_endpoint(bench: KubeletSide) -> None:
    """Until 1.36. From 1.37 on no endpoint is stopped but that of the stream, and a pod gets what another lists."""
    oldest = bench.plugin("MIG-0")
    middle = bench.plugin("MIG-1", socket_name="middle.sock")
    newest = bench.plugin("MIG-2", socket_name="newest.sock")
    oldest.end_stream(0)
    if bench.by_socket:
        assert_stays(lambda: bench.offered() == ["MIG-2"])
        middle.push_to(0, "MIG-1")
        bench.wait(lambda: bench.offered() == ["MIG-1"], "the middle stream writes on")
        bench.run(pod(container(devices={bench.resource: 1})))
        assert sorted(middle.allocated + newest.allocated) == [["MIG-1"]], "either of them may be asked"
        return
    bench.wait(lambda: bench.offered() == [], "the newest is closed")

    middle.push_to(0, "MIG-1")
    bench.wait(lambda: bench.offered() == ["MIG-1"], "the middle stream writes on")
    message = bench.run(pod(container(devices={bench.resource: 1})), "Failed")["status"]["message"]
    assert message.startswith("Pod was rejected: Allocate failed due to endpoint &{")
    assert message.endswith("} has been stopped, which is unexpected")


def test_an_unlinked_plugin_socket_changes_nothing(bench: KubeletSide) -> None:
    plugin = bench.plugin("MIG-0")
    plugin.socket.unlink()
    raw = bench.run(pod(container(devices={bench.resource: 1})))
    assert bench.held()[raw["metadata"]["name"]] == ["MIG-0"]


def assert_stays(condition: Callable[[], bool], seconds: float = NEVER_AGAIN_SECONDS) -> None:
    """What must not happen has this long to happen."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert condition()
        time.sleep(0.25)
