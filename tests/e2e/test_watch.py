"""Our list and watch on a real API server: versions that are too old, a server that dies, storage that was compacted.

A control plane of its own, for its API server is killed. The reflector must end up with exactly what a list shows,
deletions that it could not see included.
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients
from kube.errors import ApiError, Gone
from kube.reflector import Reflector
from kube.transport import open_response
from kube.watch import WatchStream, WatchTiming
from tests.e2e.real_cluster import PLANS, RealCluster, call, plan, running_cluster
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.rig.controlplane.plane import API_SERVER
from tests.e2e.wire import Wire
from tests.waiting import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
SOON = ("--etcd-compaction-interval=5s",)


@pytest.fixture(scope="module")
def mortal(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """An API server that compacts its storage every five seconds."""
    with running_cluster(programs, tmp_path_factory.mktemp("cluster"), {API_SERVER: SOON}) as found:
        found.install()
        yield found


def versions_reflector(api: ApiClient, seen: list[tuple[str, bool]]) -> Reflector[str]:
    """Of ConfigMaps; `seen` gets the name of each that changed, and whether it is still there."""
    return Reflector(
        api,
        MAPS,
        project=lambda item: str(item["metadata"]["resourceVersion"]),
        on_change=lambda key, _old, new: seen.append((key[1], new is not None)),
    )


def _admin_token(cluster: RealCluster) -> str:
    """The wire serves bearers of tokens, not of certificates."""
    cluster.kubectl("create", "serviceaccount", "wired", "-n", "default")
    subject = ("--clusterrole=cluster-admin", "--serviceaccount=default:wired")
    cluster.kubectl("create", "clusterrolebinding", "wired", *subject)
    return cluster.kubectl("create", "token", "wired", "-n", "default", check=True).strip()


def _map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"a": "b"}}


def _names(cluster: RealCluster) -> set[str]:
    return {item["metadata"]["name"] for item in apply.get(cluster.admin, MAPS)["items"]}


def test_a_version_that_is_too_old_is_gone(mortal: RealCluster) -> None:
    """410 comes as an event in a 200 answer; for a kind that was cached late, as soon as storage is compacted."""

    def gone() -> bool:
        stream = WatchStream(mortal.admin, PLANS, {}, version="1", timing=WatchTiming(watch_seconds=2))
        try:
            for _ in stream:
                return False
        except Gone:
            return True
        return False

    apply.create(mortal.admin, PLANS, plan("watched"))
    eventually(gone, "410 for resourceVersion 1")
    query: dict[str, str | int | bool] = {"watch": True, "resourceVersion": "1", "timeoutSeconds": 2}
    answer = open_response(mortal.admin, "GET", PLANS, query=query)
    event = json.loads(answer.data.splitlines()[0])
    assert answer.status == 200
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_reflector_that_was_cut_off_until_its_version_was_too_old(
    mortal: RealCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new API server's watch cache begins with its own start: what happened before it, only a list can show."""
    caplog.set_level(logging.DEBUG, "kube.reflector")
    wire = Wire(mortal.plane.kubeconfig_with(_admin_token(mortal)))
    config = tmp_path / "wired.kubeconfig"
    config.write_text(wire.kubeconfig)
    for name in ("cut-stays", "cut-goes", "cut-changes"):
        apply.create(mortal.admin, MAPS, _map(name))
    seen: list[tuple[str, bool]] = []
    reflector = versions_reflector(clients.load(str(config)), seen)
    reflector.start()
    try:
        assert reflector.synced.wait(30)
        wire.cut()
        apply.delete(mortal.admin, f"{MAPS}/cut-goes")
        apply.merge_patch(mortal.admin, f"{MAPS}/cut-changes", {"data": {"a": "c"}})
        apply.create(mortal.admin, MAPS, _map("cut-comes"))
        mortal.plane.parts[API_SERVER].kill()
        mortal.plane.restart(API_SERVER)
        wire.mend()
        eventually(lambda: ("default", "cut-comes") in reflector.items(), "the reflector has listed again")
        live = {item["metadata"]["name"]: item for item in apply.get(mortal.admin, MAPS)["items"]}
        versions = {name: item["metadata"]["resourceVersion"] for name, item in live.items()}
        assert {name: version for (_, name), version in reflector.items().items()} == versions
        assert "too old resource version" in caplog.text, "the watch was resumed, and answered 410"
        assert seen.count(("cut-goes", False)) == seen.count(("cut-comes", True)) == 1
        assert seen.count(("cut-changes", True)) == 2
        assert seen.count(("cut-stays", True)) == 1
    finally:
        reflector.stop()
        wire.close()


def test_a_reflector_outlives_the_api_server(mortal: RealCluster) -> None:
    for name in ("stays", "goes"):
        apply.create(mortal.admin, MAPS, _map(name))
    seen: list[tuple[str, bool]] = []
    reflector = versions_reflector(mortal.admin, seen)
    reflector.start()
    try:
        assert reflector.synced.wait(30)
        mortal.plane.parts[API_SERVER].kill()
        mortal.plane.restart(API_SERVER)
        eventually(lambda: _tried(mortal, "goes"), "the deletion is accepted")
        eventually(lambda: call(mortal.admin, "POST", MAPS, _map("comes")).status in (200, 409), "the new one is there")
        wanted = _names(mortal)
        assert {"stays", "comes"} <= wanted
        eventually(lambda: {name for _, name in reflector.items()} == wanted, "the reflector has what a list has")
        assert ("goes", False) in seen
        assert seen.count(("stays", True)) == 1  # a relist of what did not change is no news
    finally:
        reflector.stop()


def _tried(cluster: RealCluster, name: str) -> bool:
    try:
        apply.delete(cluster.admin, f"{MAPS}/{name}")
    except ApiError as error:
        return error.status == 404
    return True


def test_a_list_of_many_pages_is_whole(mortal: RealCluster) -> None:
    """More than one page of 500, while others write."""
    for number in range(1100):
        apply.create(mortal.admin, MAPS, _map(f"many-{number:04}"))
    reflector: Reflector[str] = Reflector(
        mortal.admin, MAPS, project=lambda item: str(item["metadata"]["name"]), on_change=lambda *_: None
    )
    reflector.start()
    try:
        assert reflector.synced.wait(60)
        apply.create(mortal.admin, MAPS, _map("many-later"))
        eventually(lambda: ("default", "many-later") in reflector.items(), "the watch follows the list")
        assert {name for _, name in reflector.items()} == _names(mortal)
    finally:
        reflector.stop()
