"""Rules 3 to 5: what Register refuses and in which words, streams that outlive each other, whole lists."""

import threading
from collections.abc import Iterator

import grpc
import pytest

from kube.kubelet_api import deviceplugin_pb2 as api
from tests.sandbox.kubelet.builders import MIG, pod
from tests.sandbox.kubelet.conftest import IMPATIENT, KubeletBench
from tests.sandbox.kubelet.fakes import BrokenStream, FakePlugin, WithoutOptions
from tests.waiting import eventually

UNSUPPORTED = 'requested API version "{}" is not supported by kubelet. Supported version is ["v1beta1"]'
INVALID = 'the ResourceName "{}" is invalid'


def refusal(plugin: FakePlugin, **changes: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        plugin.register(**changes)
    error: object = caught.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details()


@pytest.mark.parametrize("version", ["v1beta2", "v1alpha", ""])
def test_another_version_is_refused(bench: KubeletBench, version: str) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")

    assert refusal(plugin, version=version) == (grpc.StatusCode.UNKNOWN, UNSUPPORTED.format(version))


def test_an_invalid_resource_name_is_refused(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    name = "nvidia.com/mig-1g.10gb+me"

    assert refusal(plugin, resource_name=name) == (grpc.StatusCode.UNKNOWN, INVALID.format(name))


def test_an_endpoint_that_is_not_there_is_refused_after_the_dial_timeout(bench: KubeletBench) -> None:
    bench.kubelet(timings=IMPATIENT)
    plugin = bench.plugin("MIG-0")

    text = "failed to dial device plugin: context deadline exceeded"
    assert refusal(plugin, endpoint="missing.sock") == (grpc.StatusCode.UNKNOWN, text)
    assert refusal(plugin, endpoint=str(plugin.socket)) == (grpc.StatusCode.UNKNOWN, text), "it is joined to the folder"


def test_missing_options_are_an_error(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    old = WithoutOptions(bench.paths.plugin_dir, "nvidia.com/gpu").serve()
    bench.plugins.append(old)

    code, text = refusal(old)
    assert code is grpc.StatusCode.UNKNOWN
    assert text == "failed to get device plugin options: rpc error: code = Unimplemented desc = Method not found!"


def test_options_may_take_longer_than_the_dial(bench: KubeletBench) -> None:
    bench.kubelet(timings=IMPATIENT)
    may_answer = threading.Event()

    class Slow(FakePlugin):
        def GetDevicePluginOptions(  # noqa: N802 - the name in the proto
            self, request: api.Empty, context: grpc.ServicerContext
        ) -> api.DevicePluginOptions:
            may_answer.wait(IMPATIENT.dial_timeout_seconds * 2)
            return super().GetDevicePluginOptions(request, context)

    bench.add_plugin(Slow(bench.paths.plugin_dir, MIG).offer("MIG-0"))
    eventually(lambda: bench.offered() == ["MIG-0"], "registered all the same")


def test_the_requests_options_are_ignored(bench: KubeletBench) -> None:
    """`FakePlugin.register` claims both options; its own answer says neither."""
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    bench.run(pod())

    assert plugin.preferred_requests == []
    assert plugin.pre_started == []


def test_list_and_watch_is_opened_after_the_answer(bench: KubeletBench) -> None:
    bench.kubelet()
    answered = threading.Event()
    order: list[bool] = []

    class Watching(FakePlugin):
        def ListAndWatch(  # noqa: N802 - the name in the proto
            self, request: api.Empty, context: grpc.ServicerContext
        ) -> Iterator[api.ListAndWatchResponse]:
            order.append(answered.wait(5))
            return super().ListAndWatch(request, context)

    plugin = Watching(bench.paths.plugin_dir, MIG).offer("MIG-0")
    bench.add_plugin(plugin)
    answered.set()

    eventually(lambda: bench.offered() == ["MIG-0"], "offered")
    assert order == [True]


def test_the_last_list_wins_and_replaces_the_whole(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", "MIG-1")

    plugin.offer("MIG-1", "MIG-2").push()
    eventually(lambda: bench.offered() == ["MIG-1", "MIG-2"], "the second list")
    plugin.offer().push()
    eventually(lambda: bench.offered() == [], "the empty list")
    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "0/0 at the node")


def test_a_second_registration_replaces_the_endpoint_and_leaves_the_old_stream_open(bench: KubeletBench) -> None:
    bench.kubelet()
    old = bench.plugin("OLD-0")
    new = bench.plugin("NEW-0", socket_name="new.sock")

    old.push_to(0, "OLD-1")
    eventually(lambda: bench.offered() == ["OLD-1"], "the stale stream still writes")
    bench.run(pod())
    assert (old.allocated, new.allocated) == ([], [["OLD-1"]]), "Allocate goes to the newest endpoint"


def test_the_end_of_an_older_stream_kills_the_newest_registration(bench: KubeletBench) -> None:
    bench.kubelet()
    old = bench.plugin("MIG-0")
    new = bench.plugin("MIG-1", socket_name="new.sock")

    old.stop()

    eventually(lambda: bench.offered() == [], "all unhealthy")
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "0"), "1/0 at the node")
    new.offer("MIG-2").push()
    assert bench.offered() == [], "the kubelet has closed the new stream too"


def test_the_kubelet_never_redials(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")

    plugin.end_stream(0)
    eventually(lambda: bench.offered() == [], "unhealthy after the stream's end")
    assert len(plugin.streams) == 1
    plugin.register()
    eventually(lambda: bench.offered() == ["MIG-0"], "only Register brings it back")


def test_a_stale_stream_keeps_listing_for_a_stopped_endpoint(bench: KubeletBench) -> None:
    bench.kubelet()
    oldest = bench.plugin("MIG-0")
    middle = bench.plugin("MIG-1", socket_name="middle.sock")
    bench.plugin("MIG-2", socket_name="newest.sock")
    oldest.end_stream(0)
    eventually(lambda: bench.offered() == [], "the newest is closed")

    middle.push_to(0, "MIG-1")
    eventually(lambda: bench.offered() == ["MIG-1"], "the middle stream writes on")
    raw = bench.run(pod(), "Failed")

    assert raw["status"]["message"].startswith("Pod was rejected: Allocate failed due to endpoint &{")
    assert raw["status"]["message"].endswith("} has been stopped, which is unexpected")


def test_a_failed_stream_leaves_the_resource_at_zero(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = BrokenStream(bench.paths.plugin_dir, MIG)
    bench.add_plugin(plugin)

    eventually(lambda: bench.api.allocatable(MIG) == ("0", "0"), "0/0 at the node")


def test_an_unlinked_plugin_socket_changes_nothing(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    plugin.socket.unlink()

    bench.run(pod("p"))
    assert bench.held() == {"p": ["MIG-0"]}
