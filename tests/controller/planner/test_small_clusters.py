"""Small clusters, as dumps, in which everything can be placed: by other pods' place, by volumes, by the GPUs' model."""

from pathlib import Path

import pytest

from cli.manifests import load_cluster
from cli.whatif import KINDS, what_if
from controller.model.views import PlannerOptions
from controller.planning import plan
from tests.controller.planner.checker import check

DATA = Path(__file__).parent / "data" / "small"


def known_gap(name: str, most: int) -> object:
    return pytest.param(name, most, marks=pytest.mark.xfail(strict=True, reason="known gap"), id=name)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        known_gap("hand-affinity", 14),
        ("hand-spread2", 12),
        ("hand-spread", 21),
        ("hand-anti", 10),
        ("hand-volumes", 5),
        ("models-three", 38),
    ],
)
def test_every_pod_that_can_be_placed_is_placed(name: str, most: int) -> None:
    """Each number was proved by mixed-integer programming, or is that of all pods."""
    snapshot = what_if(load_cluster([str(DATA / f"{name}.json")], KINDS).objects, PlannerOptions()).snapshot
    result = plan(snapshot)

    check(snapshot, result)
    assert len(result.placed) == most


def test_of_two_pods_of_which_one_fits_the_older_is_placed() -> None:
    snapshot = what_if(load_cluster([str(DATA / "hand-tie.json")], KINDS).objects, PlannerOptions()).snapshot

    assert [placed.key for placed in plan(snapshot).placed] == [("default", "older-7g")]
