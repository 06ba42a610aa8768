"""Inter-pod affinity and anti-affinity, the pod's own and that of existing pods."""

from typing import Any

import pytest

from controller.model.scheduling import SchedulingContext
from tests.builders.objects import Json
from tests.controller.simulator.words import a_node, a_pod, affinity, fits, near, state, verdicts

WEB = {"app": "web"}
NODES = ("a1", "a2", "b1", "x")
NAMESPACES = {"team": {"kind": "team"}, "other": {"kind": "guest"}, "bare": {}}


def cluster(*pods: Any) -> Any:
    nodes = [a_node("a1", zone="a"), a_node("a2", zone="a"), a_node("b1", zone="b"), a_node("x")]
    return state(nodes, pods, context=SchedulingContext(namespaces=NAMESPACES))


def one(node: str, labels: dict[str, str] | None = None, name: str = "e", **more: Any) -> Any:
    return a_pod(name, WEB if labels is None else labels, on=node, **more)


@pytest.mark.parametrize(
    ("there", "terms", "expected"),
    [
        ([one("a1")], [near()], ["a1", "a2"]),
        ([one("a1", {"app": "db"})], [near()], []),
        ([one("x")], [near()], []),
        ([one("a1", namespace="other")], [near()], []),
        ([one("a1", namespace="other")], [near(namespaces=["other"])], ["a1", "a2"]),
        ([one("a1", namespace="other")], [near(namespaceSelector={})], ["a1", "a2"]),
        ([one("a1", namespace="other")], [near(namespaceSelector={"matchLabels": {"kind": "guest"}})], ["a1", "a2"]),
        ([one("a1", namespace="other")], [near(namespaceSelector={"matchLabels": {"kind": "team"}})], []),
        # Both terms must be met by the same pods.
        ([one("a1"), one("b1", {"app": "db"}, "f")], [near(), near("db")], []),
        (
            [one("a1"), one("a2", {"app": "web", "tier": "db"}, "f")],
            [near(), near(None, "kubernetes.io/hostname")],
            ["a1", "a2"],
        ),
        # A terminating pod still attracts.
        ([one("a1", deletionTimestamp="2026-01-01T00:00:00Z")], [near()], ["a1", "a2"]),
    ],
)
def test_affinity(there: list[Any], terms: list[Json], expected: list[str]) -> None:
    assert fits(cluster(*there), a_pod("p", spec=affinity(*terms)), *NODES) == expected


def test_the_first_of_its_kind_fits_wherever_the_key_is() -> None:
    first = a_pod("p", WEB, spec=affinity(near()))

    assert fits(cluster(), first, *NODES) == ["a1", "a2", "b1"]
    assert fits(cluster(one("b1")), first, *NODES) == ["b1"]
    # A pod matches, but where no zone is: that does not count as the first.
    assert fits(cluster(one("x")), first, *NODES) == ["a1", "a2", "b1"]
    assert fits(cluster(), a_pod("p", {"app": "db"}, spec=affinity(near())), *NODES) == []


@pytest.mark.parametrize(
    ("there", "terms", "expected"),
    [
        ([], [near()], ["a1", "a2", "b1", "x"]),
        ([one("a1")], [near()], ["b1", "x"]),
        ([one("a1")], [near(key="kubernetes.io/hostname")], ["a2", "b1", "x"]),
        ([one("a1", namespace="other")], [near()], ["a1", "a2", "b1", "x"]),
        ([one("a1"), one("b1", {"app": "db"}, "f")], [near(), near("db")], ["x"]),
        ([one("a1")], [{"topologyKey": "zone"}], ["a1", "a2", "b1", "x"]),  # no selector: no pod is meant
        ([one("a1")], [near(None)], ["b1", "x"]),
    ],
)
def test_anti_affinity(there: list[Any], terms: list[Json], expected: list[str]) -> None:
    assert fits(cluster(*there), a_pod("p", spec=affinity(*terms, anti=True)), *NODES) == expected


@pytest.mark.parametrize(
    ("term", "newcomer", "expected"),
    [
        (near(), a_pod("p", WEB), ["b1", "x"]),
        (near(), a_pod("p", {"app": "db"}), ["a1", "a2", "b1", "x"]),
        (near(), a_pod("p", WEB, namespace="other"), ["a1", "a2", "b1", "x"]),
        (near(namespaces=["other"]), a_pod("p", WEB, namespace="other"), ["b1", "x"]),
        (near(namespaceSelector={"matchLabels": {"kind": "guest"}}), a_pod("p", WEB, namespace="other"), ["b1", "x"]),
        (near(namespaceSelector={"matchLabels": {"kind": "guest"}}), a_pod("p", WEB), ["a1", "a2", "b1", "x"]),
    ],
)
def test_existing_pods_keep_others_away(term: Json, newcomer: Any, expected: list[str]) -> None:
    there = one("a1", spec=affinity(term, anti=True))

    assert fits(cluster(there), newcomer, *NODES) == expected


def test_a_namespace_selector_that_misses_a_label_means_every_pod_in_1_36() -> None:
    nameless = near(namespaceSelector={"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]})

    assert fits(cluster(one("a1", namespace="other")), a_pod("p", spec=affinity(nameless, anti=True)), *NODES) == [
        "b1",
        "x",
    ]
    # For existing pods it is evaluated with the newcomer's namespace.
    there = one("a1", spec=affinity(nameless, anti=True))
    assert fits(cluster(there), a_pod("p", WEB, namespace="other"), *NODES) == list(NODES)
    assert fits(cluster(there), a_pod("p", WEB, namespace="bare"), *NODES) == ["b1", "x"]


def test_the_message_names_what_is_wrong() -> None:
    shy = one("a1", spec=affinity(near("guest"), anti=True))

    assert verdicts(cluster(shy), a_pod("p", spec=affinity(near("db"))), "a1") == [
        "InterPodAffinity: node(s) didn't match pod affinity rules"
    ]
    assert verdicts(cluster(shy), a_pod("p", spec=affinity(near(), anti=True)), "a1") == [
        "InterPodAffinity: node(s) didn't match pod anti-affinity rules"
    ]
    assert verdicts(cluster(shy), a_pod("p", {"app": "guest"}), "a1") == [
        "InterPodAffinity: node(s) didn't satisfy existing pods anti-affinity rules"
    ]


def test_match_label_keys_are_filled_in_as_the_api_server_does() -> None:
    old = one("a1", {**WEB, "hash": "1"})
    apart = a_pod("p", {**WEB, "hash": "2"}, spec=affinity(near(matchLabelKeys=["hash"]), anti=True))
    unlike = a_pod("p", {**WEB, "hash": "2"}, spec=affinity(near(mismatchLabelKeys=["hash"]), anti=True))

    assert fits(cluster(old), apart, *NODES) == list(NODES)
    assert fits(cluster(old), unlike, *NODES) == ["b1", "x"]


def test_what_the_api_server_filled_in_stays_as_it_is() -> None:
    """The label may have changed since; the term has not."""
    merged = near(matchLabelKeys=["hash"])
    merged["labelSelector"]["matchExpressions"] = [{"key": "hash", "operator": "In", "values": ["1"]}]
    relabelled = a_pod("p", {**WEB, "hash": "2"}, spec=affinity(merged, anti=True))

    assert fits(cluster(one("a1", {**WEB, "hash": "1"})), relabelled, *NODES) == ["b1", "x"]


def test_unknown_namespaces_are_named() -> None:
    picky = a_pod("p", spec=affinity(near(namespaceSelector={"matchLabels": {"kind": "team"}})))

    assert state([a_node("a1")]).prefilter(picky).unknown == ("the labels of namespaces",)
    assert state([a_node("a1")]).prefilter(a_pod("p", spec=affinity(near()))).unknown == ()
