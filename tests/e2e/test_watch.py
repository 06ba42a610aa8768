"""Our list and watch on a real API server: versions that are too old, a server that dies, storage that was compacted.

A control plane of its own, for its API server is killed. The reflector must end up with exactly what a list shows,
deletions that it could not see included.
"""

from collections.abc import Iterator

import pytest

from kube import apply
from kube.errors import ApiError, Gone
from kube.reflector import Reflector
from kube.watch import WatchStream, WatchTiming
from sandbox.controlplane import Binaries, RealControlPlane
from sandbox.controlplane.plane import API_SERVER
from tests.e2e.real_cluster import PLANS, RealCluster, call, eventually, plan

MAPS = "/api/v1/namespaces/default/configmaps"
SOON = ("--etcd-compaction-interval=5s",)


@pytest.fixture(scope="module")
def mortal(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """An API server that compacts its storage every five seconds."""
    plane = RealControlPlane(programs, directory=tmp_path_factory.mktemp("plane"), extra={API_SERVER: SOON})
    plane.start()
    try:
        found = RealCluster(plane, tmp_path_factory.mktemp("clients"))
        found.install()
        yield found
    finally:
        plane.stop()


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


def test_a_reflector_outlives_the_api_server(mortal: RealCluster) -> None:
    for name in ("stays", "goes"):
        apply.create(mortal.admin, MAPS, _map(name))
    seen: list[tuple[str, bool]] = []
    reflector: Reflector[str] = Reflector(
        mortal.admin,
        MAPS,
        project=lambda item: str(item["metadata"]["resourceVersion"]),
        on_change=lambda key, _old, new: seen.append((key[1], new is not None)),
    )
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
