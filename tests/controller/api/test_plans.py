"""Plans from raw JSON: effective items, settled or not, models, and the way back to the items that are written."""

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.plan_items import desired_of, item_of
from controller.api.plan_reader import RECENT, PlanReader
from controller.api.plans import Stage, read_plan
from controller.api.reading import Unreadable
from controller.model.views import Desired, MigDesired, MpsDesired, PlannedGpu, WholeDesired
from crds.v1alpha1.plan import item_hash
from crds.v1alpha1.spec import GpuItem
from crds.v1alpha1.status import ProfileReport
from nodeagent.report.status import _model
from partitioning.layouts import Instance, Layout
from partitioning.models import known_models
from partitioning.mps import slice_of_gb, units_of_gib
from partitioning.placements import limits_of
from tests.builders import objects
from tests.builders.models import H100
from tests.builders.objects import H100_NAME, Json
from tests.builders.views import plan_reading
from tests.clock import Clock

UUID = objects.uuid_of(0)
PLANNED: Json = {"index": 0, "uuid": UUID, "mig": {"instances": [{"profile": "1g.10gb", "start": 3}]}}
PINNED: Json = {"index": 0, "whole": {}}
REPORTED: Json = {"index": 0, "uuid": UUID, "model": H100_NAME, "state": "Ready", "migMode": "Enabled"}


def plan(spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    raw = objects.plan("n1", version=12, generation=3, spec=spec, status=status)
    return raw | {"metadata": raw["metadata"] | metadata}


@pytest.mark.parametrize(
    ("metadata", "again"),
    [({}, False), ({"resourceVersion": "13"}, True), ({"uid": "other"}, True), ({"resourceVersion": None}, True)],
)
def test_a_version_that_is_known_is_not_parsed_again(metadata: Json, again: bool) -> None:
    read = PlanReader(Clock())
    known = read(plan())
    assert (read(plan(**metadata)) is not known) == again


def test_readings_that_are_out_of_use_are_forgotten() -> None:
    read = PlanReader(Clock())
    kept = read(plan())
    for version in range(100, 1000):
        read(plan(resourceVersion=str(version)))
    gc.collect()
    assert len(read._known) == 1 + RECENT
    assert read(plan()) is kept


def test_an_unreadable_version_is_read_again() -> None:
    read = PlanReader(Clock())
    broken = plan({"mode": 3})
    assert isinstance(read(broken), Unreadable)
    assert isinstance(read(broken), Unreadable)


def mig(*placed: tuple[str, int, int], counts: tuple[tuple[str, int], ...] = ()) -> MigDesired:
    layout = Layout.of(Instance(profile=profile, start=start, size=size) for profile, start, size in placed)
    return MigDesired(layout=layout, counts=counts)


def test_an_empty_plan() -> None:
    read = plan_reading(plan())
    assert (read.name, read.uid, read.version, read.generation) == ("n1", "uid-plan-n1", "12", 3)
    assert (read.mode, read.paused, read.authored, read.planned, read.gpus) == ("Auto", False, False, (), ())
    assert read.planned_json == "[]"


@pytest.mark.parametrize(
    ("spec", "authored"),
    [
        ({"planned": {"gpus": [PLANNED]}}, False),
        ({"gpus": []}, False),
        ({"gpus": [PINNED]}, True),
        ({"mode": "Auto"}, True),
        ({"paused": False}, True),
        ({"devicePlugin": {}}, True),
    ],
)
def test_what_a_person_wrote(spec: Json, authored: bool) -> None:
    assert plan_reading(plan(spec)).authored is authored


def test_a_pin_wins_over_what_is_planned_and_makes_it_stale() -> None:
    read = plan_reading(plan({"gpus": [PINNED], "planned": {"gpus": [PLANNED]}}, {"gpus": [REPORTED]}))
    assert read.gpus[0].view.desired == WholeDesired()
    assert read.gpus[0].view.pinned
    assert read.stale_items == (0,)
    assert read.planned == (PlannedGpu(index=0, uuid=UUID, desired=mig(("1g.10gb", 3, 1))),)
    assert read.planned_items == {0: PLANNED}


def reported(index: int, card: int) -> Json:
    return {**REPORTED, "index": index, "uuid": objects.uuid_of(card)}


def test_items_with_a_uuid_are_those_of_their_cards_wherever_these_are_now() -> None:
    pin, planned = {**PINNED, "uuid": UUID}, {**PLANNED, "index": 1, "uuid": objects.uuid_of(1)}
    spec = {"gpus": [pin], "planned": {"gpus": [planned]}}
    read = plan_reading(plan(spec, {"gpus": [reported(0, 1), reported(1, 0)]}))
    assert [gpu.view.pinned for gpu in read.gpus] == [False, True]
    assert [gpu.item_hash for gpu in read.gpus] == [item_hash(planned), item_hash(pin)]
    assert [gpu.view.desired for gpu in read.gpus] == [mig(("1g.10gb", 3, 1)), WholeDesired()]
    assert (read.pinned, read.stale_items) == ((1,), ()), "the planned card is not that of index 1 any more"


@pytest.mark.parametrize("pin", [{**PINNED, "index": 5, "uuid": UUID}, {"index": 1, "whole": {}}])
def test_a_card_that_is_pinned_by_any_index_makes_what_is_planned_for_it_stale(pin: Json) -> None:
    spec = {"gpus": [pin], "planned": {"gpus": [PLANNED]}}
    read = plan_reading(plan(spec, {"gpus": [reported(0, 2), reported(1, 0)]}))
    assert read.gpus[1].view.desired == WholeDesired()
    assert (read.pinned, read.stale_items) == ((1,), (0,))


@pytest.mark.parametrize(("spec", "stale"), [({}, (0,)), ({"mode": "Manual"}, ()), ({"paused": True}, ())])
def test_a_frozen_plan_keeps_what_its_policy_would_not_let_go(spec: Json, stale: tuple[int, ...]) -> None:
    spec |= {"gpus": [{**PINNED, "index": 5, "uuid": UUID}], "planned": {"gpus": [PLANNED]}}
    assert plan_reading(plan(spec, {"gpus": [reported(0, 0)]})).stale_items == stale


HASH = item_hash(GpuItem.read(PLANNED))


@pytest.mark.parametrize(
    ("spec", "state", "plan_hash", "stage"),
    [
        ({"planned": {"gpus": [PLANNED]}}, "Ready", HASH, Stage.SETTLED),
        ({"planned": {"gpus": [PLANNED]}}, "Ready", "000000000000", Stage.WORKING),
        ({"planned": {"gpus": [PLANNED]}}, "Ready", None, Stage.WORKING),
        ({"planned": {"gpus": [PLANNED]}}, "Unmanaged", None, Stage.WORKING),
        ({"planned": {"gpus": [PLANNED]}}, "Changing", HASH, Stage.WORKING),
        ({"planned": {"gpus": [PLANNED]}}, "Advertising", HASH, Stage.WORKING),
        ({"planned": {"gpus": [PLANNED]}}, "WaitingForRelease", HASH, Stage.STOPPED),
        ({"planned": {"gpus": [PLANNED]}}, "Failed", HASH, Stage.STOPPED),
        ({}, "Unmanaged", None, Stage.SETTLED),
        ({}, "Ready", HASH, Stage.SETTLED),
        ({}, "Changing", None, Stage.WORKING),
        ({}, "Failed", None, Stage.STOPPED),
    ],
)
def test_how_far_the_agent_is(spec: Json, state: str, plan_hash: str | None, stage: Stage) -> None:
    gpu = {**REPORTED, "state": state, **({"planHash": plan_hash} if plan_hash else {})}
    read = plan_reading(plan(spec, {"gpus": [gpu]}))
    assert read.gpus[0].stage is stage
    assert read.gpus[0].item_hash == (HASH if spec else "")


def test_partitions_and_conditions() -> None:
    partitions = [
        {
            "resource": "nvidia.com/mig-1g.10gb.me",
            "uuid": "MIG-1",
            "start": 3,
            "size": 1,
            "state": "Used",
            "pod": "a/b",
        },
        {"resource": "nvidia.com/gpu-10gb", "uuid": "GPU::10gb::0", "memoryMiB": 9536, "state": "Free"},
    ]
    conditions = [
        {
            "type": "AgentAlive",
            "status": "True",
            "reason": "Heartbeat",
            "message": "",
            "observedGeneration": 2,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    status = {"gpus": [{**REPORTED, "partitions": partitions}], "conditions": conditions, "node": {"uid": "nu"}}
    read = plan_reading(plan(status=status))
    first, second = read.gpus[0].view.partitions
    assert (first.profile, first.start, first.size, first.held, first.pod) == ("1g.10gb+me", 3, 1, True, "a/b")
    assert (second.profile, second.memory_mib, second.used) == ("", 9536, False)
    assert read.in_use == frozenset({(UUID, "MIG-1")})
    assert read.node_uid == "nu"
    assert read.alive is not None
    assert read.alive.status == "True"
    assert read.ready is None


def test_models_come_from_the_report_and_are_shared() -> None:
    profiles = "1g.10gb id 19 slices 1 size 1 at 0,1,2,3,4,5,6"
    status = {"gpus": [REPORTED], "models": [{"name": H100_NAME, "memoryMiB": 81559, "profiles": profiles}]}
    one, other = plan_reading(plan(status=status)), plan_reading(plan(status=status, name="n2"))
    model = one.gpus[0].view.model
    assert model is not None
    assert model is other.gpus[0].view.model
    assert [spec.name for spec in model.profiles] == ["1g.10gb"]
    assert model.profiles[0].max_instances == 7


@pytest.mark.parametrize(("most", "limits"), [(2, {"1g.10gb": 2}), (None, {})])
def test_a_driver_that_makes_fewer_than_there_is_room_for_says_so(most: int | None, limits: dict[str, int]) -> None:
    reported = ProfileReport(name="1g.10gb", id=19, slices=1, size=1, starts=(0, 1, 2, 3), max_instances=most)
    status = {"gpus": [REPORTED], "models": [{"name": H100_NAME, "memoryMiB": 81559, "profiles": str(reported)}]}
    model = plan_reading(plan(status=status)).gpus[0].view.model
    assert model is not None
    assert limits_of(model) == limits


def test_a_reported_model_with_endless_geometries_has_no_placements() -> None:
    starts = ",".join(map(str, range(16)))
    profiles = "; ".join(f"1g.{n}gb id {n} slices 1 size 1 at {starts}" for n in range(1, 33))
    status = {"gpus": [REPORTED], "models": [{"name": H100_NAME, "memoryMiB": 81559, "profiles": profiles}]}
    model = plan_reading(plan(status=status)).gpus[0].view.model
    assert model is not None
    assert not model.confirmed
    assert not any(spec.starts for spec in model.profiles)


@pytest.mark.parametrize(
    ("named", "models", "found"),
    [
        ({}, 1, "H100-80GB"),
        ({}, 2, ""),
        ({"model": "NVIDIA H100 80GB HBM3"}, 2, "H100-80GB"),
        ({"model": "Unheard of"}, 1, ""),
    ],
)
def test_a_gpu_without_a_model_is_of_the_only_one(named: Json, models: int, found: str) -> None:
    """But not where another GPU names one: then this one's could not be read."""
    reports = [{"name": name, "memoryMiB": 81559} for name in (H100_NAME, "Tesla T4")[:models]]
    gpu = {key: value for key, value in REPORTED.items() if key != "model"} | named
    other = {**gpu, "index": 1, "uuid": objects.uuid_of(1), **({"model": None} if named else {})}
    read = plan_reading(plan(status={"gpus": [gpu, other], "models": reports}))
    assert [view.view.model.key if view.view.model else "" for view in read.gpus] == [found, "" if named else found]


def test_a_report_without_profiles_is_completed_from_the_catalogue() -> None:
    status = {"gpus": [REPORTED], "models": [{"name": H100_NAME, "memoryMiB": 81000}]}
    model = plan_reading(plan(status=status)).gpus[0].view.model
    assert model is not None
    assert model.mig_capable
    assert model.memory_mib == 81000


def test_an_unknown_model_is_kept_as_unknown() -> None:
    view = (
        plan_reading(plan({"planned": {"gpus": [PLANNED]}}, {"gpus": [{**REPORTED, "model": "Mystery 9000"}]}))
        .gpus[0]
        .view
    )
    assert view.model is None
    assert view.desired == mig(counts=(("1g.10gb", 1),))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        plan({"gpus": [{"index": 99, "whole": {}}]}),
        plan({"gpus": [{"index": 0, "mig": {"instances": [{"profile": "small"}]}}]}),
        plan(status={"gpus": [{"index": 0, "state": "Melting"}]}),
    ],
)
def test_a_broken_plan_is_a_value_with_a_reason(raw: Json) -> None:
    read = read_plan(raw)
    assert isinstance(read, Unreadable)
    assert read.kind == "plan"


@pytest.mark.parametrize(
    ("item", "desired"),
    [
        ({"whole": {}}, WholeDesired()),
        ({"mig": {"instances": []}}, mig()),
        (
            {"mig": {"instances": [{"profile": "3g.40gb", "start": 4}, {"profile": "1g.10gb", "count": 2}]}},
            mig(("3g.40gb", 4, 4), counts=(("1g.10gb", 2),)),
        ),
        ({"mig": {"instances": [{"profile": "1g.10gb"}, {"profile": "1g.10gb"}]}}, mig(counts=(("1g.10gb", 2),))),
        # A start that this model does not have is the agent's to refuse; it must not vanish here.
        ({"mig": {"instances": [{"profile": "3g.40gb", "start": 1}]}}, mig(counts=(("3g.40gb", 1),))),
        (
            {"mps": {"slices": [{"memoryGB": 20, "count": 2}, {"memoryGiB": 3}]}},
            MpsDesired(slices=(*units_of_gib(3), slice_of_gb(20), slice_of_gb(20))),
        ),
    ],
)
def test_items_to_desired(item: Json, desired: Desired) -> None:
    found = desired_of(GpuItem.read({"index": 0, **item}), model=H100, memory_mib=81559)
    assert found == desired


@pytest.mark.parametrize(
    ("more", "node_renames", "resource", "mergeable"),
    [
        ({}, True, "nvidia.com/gpu.shared", False),
        ({"renameByDefault": False}, True, "nvidia.com/gpu", False),
        ({"failRequestsGreaterThanOne": False}, True, "nvidia.com/gpu.shared", True),
    ],
)
def test_replicas_are_equal_shares(more: Json, node_renames: bool, resource: str, mergeable: bool) -> None:
    item = GpuItem.read({"index": 0, "mps": {"replicas": 4, **more}})
    desired = desired_of(item, model=None, memory_mib=40960, renamed=node_renames)
    assert isinstance(desired, MpsDesired)
    assert [(s.memory_mib, s.resource, s.thread_percent, s.mergeable) for s in desired.slices] == [
        (10240, resource, 25, mergeable)
    ] * 4
    assert item_of(PlannedGpu(index=0, uuid="", desired=desired)) == item


def test_an_item_goes_before_what_the_node_says_of_names() -> None:
    item = GpuItem.read({"index": 0, "mps": {"replicas": 2, "renameByDefault": True}})
    desired = desired_of(item, model=None, memory_mib=40960, renamed=False)
    assert isinstance(desired, MpsDesired)
    assert desired.slices[0].resource == "nvidia.com/gpu.shared"


@st.composite
def planned_gpus(draw: st.DrawFn) -> PlannedGpu:
    kind = draw(st.sampled_from(["mig", "mps", "whole"]))
    desired: Desired = WholeDesired()
    if kind == "mps":
        slices = st.builds(slice_of_gb, st.integers(1, 80), st.none() | st.integers(1, 100))
        units = units_of_gib(draw(st.integers(0, 80)))
        desired = MpsDesired(slices=(*draw(st.lists(slices, max_size=15)), *units))
    if kind == "mig":
        places = [Instance(profile=s.name, start=start, size=s.size) for s in H100.profiles for start in s.starts]
        counts = st.dictionaries(st.sampled_from(["1g.10gb", "3g.40gb"]), st.integers(1, 7))
        layout = Layout.of(draw(st.sets(st.sampled_from(places), max_size=7)))
        desired = MigDesired(layout=layout, counts=tuple(sorted(draw(counts).items())))
    return PlannedGpu(index=draw(st.integers(0, 15)), uuid=UUID, desired=desired)


@given(planned_gpus())
def test_what_is_written_reads_back_as_what_was_planned(gpu: PlannedGpu) -> None:
    item = GpuItem.read(item_of(gpu).wire())
    assert desired_of(item, model=H100, memory_mib=81559) == gpu.desired
    assert item_of(gpu).wire() == item.wire()


def test_every_catalogued_model_reads_back_from_its_own_report() -> None:
    for model in known_models():
        name = model.names[0]
        report = _model(name, model).wire()
        if model.profiles and "profiles" not in report:
            continue
        read = plan_reading(plan(status={"gpus": [{**REPORTED, "model": name}], "models": [report]}))
        found = read.gpus[0].view.model
        assert found is not None
        assert found.key == model.key
        there = {s.name: (s.profile_id, s.compute_slices, s.size, s.memory_mib, s.starts) for s in found.profiles}
        for s in model.profiles:
            if s.size:
                assert there[s.name] == (s.profile_id, s.compute_slices, s.size, s.memory_mib, s.starts)
        assert {s.name: s.max_instances for s in found.profiles if s.starts} == {
            s.name: s.max_instances for s in model.profiles if s.starts
        }
