"""What constraints between pods cost: counted pods and terms that are looked at, the same on every machine."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement, SchedulingContext
from controller.model.views import PodView
from controller.simulator.cluster import ClusterState
from controller.simulator.population import Population
from controller.simulator.selectors import selects
from tests.controller.simulator.words import HOST, a_node, a_pod
from tests.drawn import sparing

NODES = [a_node(f"n{number}") for number in range(10)]


def away_from(key: str, *values: str, operator: str = "In") -> PodAffinityTerm:
    """In all namespaces."""
    selector = LabelSelector(requirements=(Requirement(key=key, operator=operator, values=values),))
    return PodAffinityTerm(topology_key=HOST, selector=selector, namespace_selector=LabelSelector())


def bound(number: int) -> list[PodView]:
    pods = [a_pod(f"b{one}", {"app": f"app-{one % 50}", "id": str(one)}, on=f"n{one % 10}") for one in range(number)]
    return [replace(pod, namespace=f"team-{one % 20}") for one, pod in enumerate(pods)]


def apart(name: str, *terms: PodAffinityTerm, **labels: str) -> PodView:
    return replace(a_pod(name, labels), anti_affinity=terms)


HOSTILE: dict[str, Callable[[], list[PodView]]] = {
    "60,000 values": lambda: [apart("p", away_from("app", *(f"v{number}" for number in range(60_000))))],
    "5,000 terms of one value": lambda: [apart("p", *(away_from("app", f"v{number}") for number in range(5_000)))],
    "5,000 keys": lambda: [apart("p", *(away_from(f"key-{number}", "x") for number in range(5_000)))],
    "60 pods with 20,000 values": lambda: [
        apart(f"p{number}", away_from("app", *(f"v{number}-{one}" for one in range(20_000))), own=f"o{number}")
        for number in range(60)
    ],
    "600 pods that keep off themselves": lambda: [
        apart(f"p{number}", away_from("own", f"o{number}"), own=f"o{number}") for number in range(600)
    ],
}


def visits(pods: list[PodView], residents: int) -> int:
    """Of pods that are judged on every node and placed, one after the other, twice."""
    context = SchedulingContext(namespaces={f"team-{number}": {} for number in range(20)})
    cluster = ClusterState(NODES, bound(residents), context=context)
    for pod in (*pods, *pods):
        cluster.remove_pod(pod.uid)
        fitting = [node.name for node in NODES if cluster.why_not(pod, node.name) is None]
        if fitting:
            cluster.add_pod(pod, fitting[0])
    return cluster.visits


@pytest.mark.parametrize("kind", sparing([*HOSTILE], "60 pods with 20,000 values"))
def test_a_pod_visits_none_of_those_that_it_cannot_mean(kind: str) -> None:
    pods = HOSTILE[kind]()
    few, many = visits(pods, 200), visits(pods, 800)

    assert many <= 1.5 * few + 100
    assert many <= 20 * len(pods) + 20_000


def test_more_kinds_of_pods_than_are_remembered_cost_no_more_each() -> None:
    few, many = (
        visits([apart(f"p{one}", away_from("own", f"o{one}"), own=f"o{one}") for one in range(number)], 200) / number
        for number in (200, 800)
    )
    assert many <= 2 * few


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        key=st.sampled_from("abc"),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from("xyzw"), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(Requirement, key=st.sampled_from("abc"), operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.none() | st.builds(LabelSelector, requirements=st.lists(REQUIREMENTS, max_size=3).map(tuple))


@given(
    st.lists(st.tuples(st.sampled_from(["one", "two"]), LABELS), max_size=8),
    st.sets(st.integers(0, 7)),
    SELECTORS,
    st.none() | st.lists(st.sampled_from(["one", "two", "three"]), max_size=3).map(tuple),
)
def test_all_that_a_selector_means_are_candidates_and_each_once(
    pods: list[tuple[str, dict[str, str]]],
    gone: set[int],
    selector: LabelSelector | None,
    namespaces: tuple[str, ...] | None,
) -> None:
    population = Population(NODES[:1])
    views = [replace(a_pod(f"p{one}", labels), namespace=name) for one, (name, labels) in enumerate(pods)]
    list(
        population.candidates(LabelSelector(requirements=(Requirement(key="a", operator="In"),)), None)
    )  # the index is there
    for view in views:
        population.add(view, "n0")
    for number in sorted(gone & set(range(len(views)))):
        population.remove(views[number].uid)

    found = [resident.pod.name for resident in population.candidates(selector, namespaces)]

    assert len(found) == len(set(found))
    meant = {
        view.name
        for number, view in enumerate(views)
        if number not in gone
        and selects(selector, dict(view.labels))
        and view.namespace in (namespaces or ("one", "two"))
    }
    assert namespaces == () or meant <= set(found)
