"""Correcting `spec.planned` is idempotent on any status, through the wire format and back."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.plan_items import item_of
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, PlannedGpu, PlannerOptions, PlanView
from controller.planner.inventory.eligibility import take_stock
from controller.planner.result.repair import repaired
from crds.v1alpha1.names import PartitionState
from tests.builders.objects import H100_NAME, Json, gpu, item, node, partition, plan, status
from tests.builders.views import node_view, plan_reading

PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.10gb+me", "9g.90gb")
RESOURCES = [f"nvidia.com/mig-{name.replace('+', '.')}" for name in PROFILES] + [
    "nvidia.com/gpu-10gb",
    "nvidia.com/gpu",
]


def corrected(raw: Json) -> list[Json]:
    """The items after one correction, as they would be written."""
    reading = plan_reading(raw)
    views = tuple(replace(found.view, settled=False) for found in reading.gpus)
    view = PlanView(name="n1", node_uid="uid-n1", agent_alive=True, planned=reading.planned, gpus=views)
    (stock,) = take_stock(Snapshot(nodes=(node_view(node()),), plans=(view,)), PlannerOptions())
    stored = reading.planned_items
    before = {found.index: found for found in reading.planned}
    return [_wire(found, before, stored) for _, found in sorted(repaired(stock).items())]


def _wire(found: PlannedGpu, before: dict[int, PlannedGpu], stored: dict[int, Json]) -> Json:
    return stored[found.index] if before.get(found.index) == found else item_of(found).wire()


def lost(**fields: Any) -> Json:
    """What an agent reports of a GPU that it cannot read: no model, no MIG mode, partitions without placements."""
    held = partition(0, "Used", pod="default/a", resource="nvidia.com/mig-3g.40gb")
    bare = {name: value for name, value in held.items() if name not in ("start", "size")}
    found = gpu(0, state="Failed", item=item(0, 0), partitions=[bare])
    return {name: value for name, value in found.items() if name not in ("model", "migMode")} | fields


@pytest.mark.parametrize("known", [{}, {"model": H100_NAME}, {"model": H100_NAME, "migMode": "Enabled"}])
def test_the_item_of_a_lost_gpu_stays_as_it_is(known: Json) -> None:
    items = [item(0, 4, profile="3g.40gb")]
    assert corrected(plan(planned=items, status=status(lost(**known)))) == items


def test_a_partition_that_the_item_counts_is_not_put_back() -> None:
    counted = [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "count": 2}]}}]
    held = gpu(0, state="Changing", partitions=[partition(3, "Used")])
    assert corrected(plan(planned=counted, status=status(held))) == counted


partitions = st.builds(
    lambda resource, state, start, size: {
        "resource": resource,
        "uuid": f"MIG-{start}-{size}-{resource}",
        "state": state,
        **({} if start is None else {"start": start}),
        **({} if size is None else {"size": size}),
    },
    st.sampled_from(RESOURCES),
    st.sampled_from([state.value for state in PartitionState]),
    st.none() | st.integers(0, 8),
    st.none() | st.integers(1, 8),
)
gpus = st.builds(
    lambda model, mode, state, found: {
        **gpu(0, state=state, partitions=found),
        "model": model,
        **({"migMode": mode} if mode else {}),
    },
    st.sampled_from([H100_NAME, "", "NVIDIA Unheard Of"]),
    st.sampled_from(["Enabled", "Disabled", ""]),
    st.sampled_from(["Ready", "Failed", "Changing", "WaitingForRelease"]),
    st.lists(partitions, max_size=8),
)
instances = st.lists(
    st.builds(
        lambda profile, start, count: {"profile": profile, **({"count": count} if start is None else {"start": start})},
        st.sampled_from(PROFILES),
        st.none() | st.integers(0, 7),
        st.integers(1, 7),
    ),
    max_size=6,
)
slices = st.lists(
    st.builds(lambda gb, count: {"memoryGB": gb, "count": count}, st.sampled_from([5, 10, 20]), st.integers(1, 3)),
    min_size=1,
    max_size=3,
)
contents = instances.map(lambda found: {"mig": {"instances": found}}) | slices.map(lambda s: {"mps": {"slices": s}})


@given(gpus, contents)
def test_correcting_twice_is_correcting_once(found: Json, content: Json) -> None:
    first = corrected(plan(planned=[{"index": 0, **content}], status=status(found)))
    assert corrected(plan(planned=first, status=status(found))) == first


def _held(view: GpuView) -> int:
    return sum(part.held for part in view.partitions)


@given(gpus, instances)
def test_an_item_grows_by_partitions_in_use_alone(found: Json, planned: list[Json]) -> None:
    raw = plan(planned=[{"index": 0, "mig": {"instances": planned}}], status=status(found))
    after = corrected(raw)
    grown = sum(one.get("count", 1) for one in after[0]["mig"]["instances"]) if after else 0
    (reading,) = plan_reading(raw).gpus
    assert grown <= sum(one.get("count", 1) for one in planned) + _held(reading.view)
