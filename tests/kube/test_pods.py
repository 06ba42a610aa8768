"""What a pod's containers request together, and the most at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.pods import PodAmounts, all_containers, pod_amounts, staying_containers


def container(amount: int, *, sidecar: bool = False) -> dict[str, Any]:
    return {"name": f"c{amount}", "amount": amount, **({"restartPolicy": "Always"} if sidecar else {})}


def amounts(containers: list[dict[str, Any]], init: list[dict[str, Any]]) -> PodAmounts[int]:
    spec = {"containers": containers, "initContainers": init}
    return pod_amounts(spec, lambda one: {"x": one["amount"]} if one["amount"] else {})


@pytest.mark.parametrize(
    ("containers", "init", "running", "most"),
    [
        ([1, 2], [], 3, 3),
        ([1, 2], [2], 3, 3),
        ([1], [4, 2], 1, 4),
        ([1], ["2", 4], 3, 6),
        ([1], [4, "2"], 3, 4),
        ([1], ["2", 4, "3", 2], 6, 7),
        ([], ["2", "3"], 5, 5),
        ([0], [0], 0, 0),
    ],
)
def test_an_init_container_holds_what_sidecars_before_it_hold_too(
    containers: list[int], init: list[int | str], running: int, most: int
) -> None:
    """Sidecars are texts here."""
    found = amounts([container(n) for n in containers], [container(int(n), sidecar=isinstance(n, str)) for n in init])

    assert (found.running.get("x", 0), found.most.get("x", 0)) == (running, most)


@given(
    containers=st.lists(st.integers(0, 5), max_size=3),
    init=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=5),
)
def test_the_most_is_that_of_the_pods_life_step_by_step(containers: list[int], init: list[tuple[int, bool]]) -> None:
    held, most = 0, 0
    for amount, sidecar in init:
        most = max(most, held + amount)
        held += amount if sidecar else 0
    running = held + sum(containers)

    found = amounts([container(n) for n in containers], [container(n, sidecar=sidecar) for n, sidecar in init])

    assert (found.running.get("x", 0), found.most.get("x", 0)) == (running, max(most, running))


def test_which_containers_stay() -> None:
    spec = {"containers": [container(1)], "initContainers": [container(2), container(3, sidecar=True)]}

    assert [one["name"] for one in staying_containers(spec)] == ["c3", "c1"]
    assert [one["name"] for one in all_containers(spec)] == ["c1", "c2", "c3"]
    assert list(staying_containers({"containers": None})) == []
