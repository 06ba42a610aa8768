"""What planning makes of knownMigGeometries."""

from pathlib import Path

import pytest
import yaml

from controller.config.geometries_file import read_geometries
from controller.model.known_geometries import KnownGeometries
from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions
from controller.planning import plan
from tests.builders.models import A100, H100
from tests.controller.planner.builders import cluster, holder, mig, pod, server
from tests.controller.planner.checker import check, layouts

NOS = yaml.safe_load((Path(__file__).parent.parent / "data" / "nos_known_mig_geometries.yaml").read_text())


def only(*geometries: dict[str, int]) -> KnownGeometries:
    return read_geometries([{"models": ["NVIDIA-A100-SXM4-40GB"], "allowedGeometries": list(geometries)}])


def planned(snapshot: Snapshot, known: KnownGeometries) -> PlanningResult:
    result = plan(snapshot, PlannerOptions(geometries=known))
    check(snapshot, result)
    return result


def test_a_model_of_which_nothing_can_exist_is_not_cut() -> None:
    known = only({"1g.10gb": 9})

    assert "no geometry that can exist: GPUs of this model will not be cut" in known.warnings[-1]
    assert planned(cluster(server("n", mig()), pending=[pod("a", "1g.5gb")]), known).placed == ()


def test_models_that_are_not_named_are_not_restricted() -> None:
    known = read_geometries(NOS)

    assert known.restrict(H100) is H100
    assert KnownGeometries().restrict(A100) is A100


def test_only_what_is_allowed_is_made() -> None:
    """nos' file lacks 4g + 3g, which fit one A100."""
    snapshot = cluster(server("n", mig(0), mig(1)), pending=[pod("a", "4g.20gb"), pod("b", "3g.20gb")])

    assert layouts(planned(snapshot, KnownGeometries())) == ["4g.20gb at 0, 3g.20gb at 4"]
    assert len(layouts(planned(snapshot, read_geometries(NOS)))) == 2


def test_a_part_of_an_allowed_geometry_is_allowed() -> None:
    known = only({"1g.5gb": 3, "3g.20gb": 1})
    pending = [pod("large", "3g.20gb"), *(pod(f"small{n}", "1g.5gb") for n in range(2))]
    result = planned(cluster(server("n", mig()), pending=pending), known)

    assert len(result.placed) == 3


def test_what_is_in_use_counts() -> None:
    known = only({"1g.5gb": 3, "3g.20gb": 1})
    used = [("1g.5gb", start) for start in range(3)]
    gpu, held = mig(used=used), holder("n", ("1g.5gb", 3))

    (unplaced,) = planned(cluster(server("n", gpu), pods=[held], pending=[pod("a", "1g.5gb")]), known).unplaced
    assert unplaced.reason is not UnplacedReason.NEVER_FITS
    result = planned(cluster(server("n", gpu), pods=[held], pending=[pod("b", "3g.20gb")]), known)
    assert layouts(result) == ["1g.5gb at 0, 1g.5gb at 1, 1g.5gb at 2, 3g.20gb at 4"]


def test_idle_instances_beyond_an_allowed_geometry_go_when_the_gpu_is_cut() -> None:
    known = only({"1g.5gb": 1, "3g.20gb": 1})
    snapshot = cluster(server("n", mig(idle=[("1g.5gb", 0), ("1g.5gb", 1)])), pending=[pod("a", "3g.20gb")])

    assert layouts(planned(snapshot, known)) in (["1g.5gb at 0, 3g.20gb at 4"], ["1g.5gb at 1, 3g.20gb at 4"])


def test_what_is_there_serves_pods_even_if_it_would_not_be_made() -> None:
    snapshot = cluster(server("n", mig(idle=[("2g.10gb", 0)])), pending=[pod("a", "2g.10gb")])
    result = planned(snapshot, only({"7g.40gb": 1}))

    assert len(result.placed) == 1
    assert result.node_changes == ()


@pytest.mark.parametrize("profile", ["2g.10gb", "1g.5gb"])
def test_a_profile_that_is_never_allowed_is_blocked_by_the_file(profile: str) -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", profile)])
    (unplaced,) = planned(snapshot, only({"7g.40gb": 1})).unplaced

    assert unplaced.reason is UnplacedReason.BLOCKED
    assert (
        "offers mig-7g.40gb (by knownMigGeometriesFile). Request one of these, or ask an administrator to allow it."
        in unplaced.message
    )


def test_more_than_a_file_allows_together_is_blocked_by_it() -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", ("1g.5gb", 3))])
    (unplaced,) = planned(snapshot, only({"1g.5gb": 2})).unplaced

    assert unplaced.reason is UnplacedReason.BLOCKED
    assert "allows at most 2 nvidia.com/mig-1g.5gb on one node, and the pod requests 3 nvidia" in unplaced.message


def test_a_profile_that_the_model_lacks_never_fits_whatever_a_file_allows() -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", "1g.10gb+gfx")])
    (unplaced,) = planned(snapshot, only({"7g.40gb": 1})).unplaced

    assert unplaced.reason is UnplacedReason.NEVER_FITS


def test_more_pods_than_a_list_allows() -> None:
    """Seven of 1g or one of 7g: the packing test, the bound and the placing agree on that."""
    known = only({"1g.5gb": 4}, {"7g.40gb": 1})
    gpus = [mig(index) for index in range(3)]
    pending = [pod(f"small{n}", "1g.5gb") for n in range(9)] + [pod("large", "7g.40gb")]
    result = planned(cluster(server("n", *gpus), pending=pending), known)

    assert len(result.placed) == 9
    assert all(text.count("1g.5gb") <= 4 for text in layouts(result))
