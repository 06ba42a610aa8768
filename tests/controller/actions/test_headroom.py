"""What could still be cut: each profile alone, alongside what stays; and what fragmentation costs."""

from controller.actions.headroom import Headroom, headroom
from controller.model.views import GpuView, PlannerOptions
from controller.planner.inventory.eligibility import take_stock
from tests.builders.models import A100
from tests.controller.planner.builders import cluster, mig, mps, server

NAME = A100.names[0]


def of(*gpus: GpuView) -> Headroom:
    (stock,) = take_stock(cluster(server("node-1", *gpus)), PlannerOptions())
    return headroom(stock)


def test_an_empty_gpu_holds_each_profile_as_often_as_its_model_allows() -> None:
    found = of(mig())
    assert dict(found.placeable) == {(NAME, spec.name): spec.max_instances for spec in A100.profiles}
    assert found.largest[NAME][2] == "7g.40gb"
    assert (found.slices[NAME], found.free_slices[NAME], found.largest_slices[NAME]) == (8, 8, 8)


def test_what_is_in_use_stays_and_what_is_idle_may_be_cut_again() -> None:
    found = of(mig(used=[("1g.5gb", 0)], idle=[("1g.5gb", 4)]))
    assert found.placeable[NAME, "3g.20gb"] == 1
    assert found.placeable[NAME, "7g.40gb"] == 0
    assert found.largest[NAME][2] in ("4g.20gb", "3g.20gb")


def test_free_slices_that_no_large_instance_covers_are_fragmentation() -> None:
    used = [("1g.5gb", 0), ("1g.5gb", 2), ("1g.5gb", 4), ("1g.5gb", 6)]
    found = of(mig(used=used))
    assert found.free_slices[NAME] == 4
    assert found.largest_slices[NAME] == 1


def test_a_pinned_gpu_offers_what_is_idle_on_it_and_no_more() -> None:
    found = of(mig(used=[("1g.5gb", 0)], idle=[("2g.10gb", 2)], pinned=True))
    assert dict(found.placeable) == {(NAME, "2g.10gb"): 1}
    assert found.largest[NAME][2] == "2g.10gb"
    assert not found.free_slices


def test_sums_over_nodes_and_gpus_shared_by_mps_count_for_nothing() -> None:
    total = of(mps(idle_gb=[10]))
    assert not total.placeable
    for _ in range(2):
        total.add(of(mig(used=[("7g.40gb", 0)]), mig(1)))
    assert total.placeable[NAME, "7g.40gb"] == 2
    assert total.largest[NAME][2] == "7g.40gb"
