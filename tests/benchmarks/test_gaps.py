"""The families of instances: what fits by construction does fit, and the table names what the planner leaves out."""

from collections import Counter

import pytest

from benchmarks import gaps
from benchmarks.families import FAMILIES, case
from benchmarks.gaps import Row, Size
from benchmarks.oracle import exact_bound
from controller.simulator.cluster import ClusterState

SHAPE = {"nodes": 3, "gpus": 4}


@pytest.mark.parametrize("name", FAMILIES)
def test_all_pods_fit_where_they_were_placed(name: str) -> None:
    """GPUs by the exact bound of the same pods without other constraints; the rest by the filters, all in place."""
    made = case(FAMILIES[name], **SHAPE, seed=5)
    snapshot = made.snapshot
    assert made.places.keys() == {pod.uid for pod in snapshot.pending}
    assert len(made.places) >= 12
    cluster = ClusterState(snapshot.nodes, snapshot.pods, context=snapshot.context)
    free = {
        node.name: Counter(cpu=node.allocatable["cpu"], memory=node.allocatable["memory"]) for node in snapshot.nodes
    }
    for pod, node in ((pod, made.places.get(pod.uid, pod.node)) for pod in (*snapshot.pods, *snapshot.pending)):
        cluster.add_pod(pod, node)
        free[node].subtract({name: amount for name, amount in pod.requests if name in free[node]})
    for pod in snapshot.pending:
        cluster.remove_pod(pod.uid)
        assert cluster.why_not(pod, made.places[pod.uid], without=("NodeResourcesFit",)) is None
        cluster.add_pod(pod, made.places[pod.uid])
    assert min(amount for left in free.values() for amount in left.values()) >= 0
    if made.judged is not None:
        assert exact_bound(made.judged, per_node=True).found == len(snapshot.pending)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_arguments_give_the_same_case(name: str) -> None:
    first, second, other = (case(FAMILIES[name], **SHAPE, seed=seed, more=0.5) for seed in (1, 1, 2))

    assert first == second
    assert first.snapshot != other.snapshot
    assert len(first.snapshot.pending) == len(first.places) + round(0.5 * len(first.places))


def test_a_level_that_lacks_more_than_one_per_cent_and_two_pods_counts() -> None:
    made = case(FAMILIES["levels"], **SHAPE, seed=1)
    levels = Counter(pod.priority for pod in made.snapshot.pending)
    possible = [levels[each] for each in sorted(levels, reverse=True)]

    for lacking, over in ((0, 0), (2, 0), (3, 1)):
        row = Row()
        row.add(made.snapshot, [possible[0], possible[1] + lacking, possible[2]])
        assert (row.worst, row.over) == (lacking, over)


def test_the_table_has_a_row_per_family_and_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "SIZES", {"one": Size(shapes=((1, 2),), exact=True)})
    lines = list[str]()
    gaps.main(["--sizes", "one", "--families", "levels;spread", "--seed", "3"], show=lines.append)

    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| plain", "one, fits"],
        ["| plain", "one, more"],
        ["| levels", "one, fits"],
        ["| levels", "one, more"],
        ["| spread", "one, fits"],
    ]
