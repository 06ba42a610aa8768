"""What filters read in addition to pods and nodes: watched when a pod needs it, unknown until it is listed."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.api.pod_groups import KUBERNETES, VOLCANO
from controller.cache.informers import OF_VOLUMES, POD_GROUPS, WORKLOADS, Kind, SchedulingInformers, needed_for
from controller.model.scheduling import (
    DEFAULT_PROFILE,
    ClaimUse,
    FilterProfile,
    LabelSelector,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
)
from controller.model.views import PodView
from kube import apply, clients
from tests.apiserver import ApiServer, Refuse
from tests.builders import objects
from tests.builders.views import pod_view
from tests.waiting import eventually

SELECTING = PodAffinityTerm(
    topology_key="zone",
    namespace_selector=LabelSelector(requirements=(Requirement(key="team", operator="Exists"),)),
)
BY_ZONE = FilterProfile(default_spread=(SpreadConstraint(topology_key="zone"),))


def pod(**fields: Any) -> PodView:
    return replace(pod_view(objects.pod()), **fields)


@pytest.mark.parametrize(
    ("pending", "profile", "kinds"),
    [
        (pod(), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES}),
        (pod(gpu=()), DEFAULT_PROFILE, set()),
        (pod(gpu=(), misnamed=("nvidia.com/mig-small",)), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES}),
        (pod(node="n"), DEFAULT_PROFILE, set()),
        (pod(gang="g", gang_api=KUBERNETES), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES, *POD_GROUPS[KUBERNETES]}),
        (pod(gang="g", gang_api=VOLCANO), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES, Kind.OF_VOLCANO}),
        (pod(gang="g"), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES}),
        (pod(volumes=(ClaimUse(claim="c"),)), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES, *OF_VOLUMES}),
        (pod(affinity=(SELECTING,)), DEFAULT_PROFILE, {Kind.DEVICE_CLASSES, Kind.NAMESPACES}),
        (pod(affinity=(SELECTING,), node="n"), DEFAULT_PROFILE, set()),
        (pod(anti_affinity=(SELECTING,), node="n", gpu=()), DEFAULT_PROFILE, {Kind.NAMESPACES}),
        (
            pod(affinity=(PodAffinityTerm(topology_key="zone", namespace_selector=LabelSelector()),)),
            DEFAULT_PROFILE,
            {Kind.DEVICE_CLASSES},
        ),
        (pod(), BY_ZONE, {Kind.DEVICE_CLASSES, Kind.SERVICES, *WORKLOADS.values()}),
        (pod(spread=(SpreadConstraint(topology_key="zone", hard=False),)), BY_ZONE, {Kind.DEVICE_CLASSES}),
    ],
)
def test_what_a_pod_needs(pending: PodView, profile: FilterProfile, kinds: set[Kind]) -> None:
    assert needed_for(pending, profile) == kinds


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def awake() -> threading.Event:
    return threading.Event()


@pytest.fixture
def informers(server: ApiServer, awake: threading.Event) -> Iterator[SchedulingInformers]:
    found = SchedulingInformers(clients.for_url(server.url), {}, awake=awake)
    yield found
    found.stop()


def test_nothing_is_watched_before_a_pod_needs_it(informers: SchedulingInformers) -> None:
    context = informers.context()

    assert (context.namespaces, context.claims, context.workloads) == (None, None, None)
    assert context.dra_resources == frozenset()
    assert informers.watch_errors() == {}


def test_namespaces_come_with_the_first_pod_that_selects_them(
    server: ApiServer, informers: SchedulingInformers, awake: threading.Event
) -> None:
    assert not informers.listing
    informers.require(pod(affinity=(SELECTING,), gpu=()))
    informers.require(pod(affinity=(SELECTING,), gpu=()))

    namespaces = eventually(lambda: informers.context().namespaces, "the namespaces")
    assert "kube-system" in namespaces
    assert awake.is_set()
    assert not informers.listing
    assert (informers.changed, informers.take_changes()) == (True, frozenset({"/api/v1/namespaces"}))
    assert (informers.changed, informers.take_changes()) == (False, frozenset())
    assert list(informers.watch_errors()) == ["/api/v1/namespaces"]

    labelled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": {"team": "x"}}}
    apply.create(clients.for_url(server.url), "/api/v1/namespaces", labelled)
    assert eventually(lambda: (informers.context().namespaces or {}).get("new"), "the new namespace")["team"] == "x"


def test_a_first_list_is_under_way_until_it_is_there(server: ApiServer, informers: SchedulingInformers) -> None:
    answered = threading.Event()

    def hold(request: Any) -> None:
        if "namespaces" in request.path:
            answered.wait(10)

    server.faults.append(hold)
    try:
        informers.require(pod(affinity=(SELECTING,), gpu=()))
        assert informers.listing
        answered.set()
        eventually(lambda: not informers.listing, "the list")
        assert informers.context().namespaces
    finally:
        answered.set()
        server.faults.clear()


def test_what_may_not_be_listed_stays_unknown(server: ApiServer, informers: SchedulingInformers) -> None:
    server.faults.append(lambda request: Refuse(code=403) if "persistentvolumes" in request.path else None)
    try:
        informers.require(pod(volumes=(ClaimUse(claim="c"),)))
        eventually(lambda: informers.watch_errors().get("/api/v1/persistentvolumes"), "the refused list")
        assert informers.context().volumes is None
        eventually(lambda: not informers.listing, "it waits no longer for what is refused")
    finally:
        server.faults.clear()


def test_a_kind_that_the_server_does_not_serve_is_no_failing_watch(
    informers: SchedulingInformers, caplog: pytest.LogCaptureFixture
) -> None:
    informers.require(pod())
    eventually(lambda: "/apis/resource.k8s.io/v1/deviceclasses" not in informers.watch_errors(), "it to go")

    assert [record.levelname for record in caplog.records if "deviceclasses" in record.getMessage()] in ([], ["INFO"])


def serve_dra(server: ApiServer) -> None:
    """As custom resources, which suffices for list and watch."""
    text = {"type": "string"}
    spec = {"type": "object", "properties": dict.fromkeys(("driver", "nodeName", "extendedResourceName"), text)}
    schema = {"type": "object", "properties": {"spec": spec}}
    for kind, fields in (("DeviceClass", []), ("ResourceSlice", [{"jsonPath": ".spec.driver"}])):
        plural = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices"}[kind]
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.resource.k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, as a stand-in"},
            },
            "spec": {
                "group": "resource.k8s.io",
                "scope": "Cluster",
                "names": names,
                "versions": [version | {"selectableFields": fields}],
            },
        }
        apply.create(clients.for_url(server.url), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)


def test_a_node_is_listed_while_one_of_nvidias_slices_is_its_own() -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"

    def slice_of(name: str, node: str, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
        spec = {"driver": driver, "nodeName": node}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": spec,
        }

    with ApiServer() as server:
        serve_dra(server)
        api = clients.for_url(server.url)
        for body in (slice_of("a1", "a"), slice_of("a2", "a"), slice_of("b1", "b"), slice_of("c1", "c", "other.com")):
            apply.create(api, slices, body)
        informers = SchedulingInformers(api, {}, awake=threading.Event())
        try:
            assert informers.dra_lists("a") is None, "nothing is watched yet"
            informers.require_dra()
            eventually(lambda: informers.dra_lists("a") is not None, "the lists", seen=informers.watch_errors)
            assert [informers.dra_lists(node) for node in "abcd"] == [True, True, False, False]

            apply.delete(api, f"{slices}/a1")
            apply.merge_patch(api, f"{slices}/b1", {"spec": {"nodeName": "d"}})
            eventually(lambda: informers.dra_lists("d"), "one is of another node now")
            assert [informers.dra_lists(node) for node in "abcd"] == [True, False, False, True]
            apply.delete(api, f"{slices}/a2")
            eventually(lambda: informers.dra_lists("a") is False, "its last one is gone")
        finally:
            informers.stop()


def test_nothing_starts_after_the_end(informers: SchedulingInformers) -> None:
    informers.stop()
    informers.require(pod(affinity=(SELECTING,)))

    assert informers.watch_errors() == {}
