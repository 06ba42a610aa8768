"""Writing plans to the API server: what is written, and which plans are left alone."""

import pytest

from controller.actions.plan_writer import Written
from controller.api.plans import PlanReading
from controller.model.results import NodeChange
from controller.model.views import PlannedGpu
from crds.v1alpha1 import paths
from kube import apply
from tests.builders.objects import Json, gpu, item, status
from tests.controller.actions.writing import change, planned, ready, write, writer
from tests.controller.cluster import Bench


def test_writes_planned_and_nothing_else(bench: Bench) -> None:
    pinned = {"index": 1, "whole": {}}
    ready(bench, gpus=[pinned])
    assert [o.written for o in write(bench, change(item(0, 3, 5)))] == [Written.APPLIED]
    raw = bench.cluster.get_plan()
    assert raw["spec"] == {"nodeName": "n1", "gpus": [pinned], "planned": {"gpus": [item(0, 3, 5)]}}
    owners = [f for f in raw["metadata"]["managedFields"] if f["manager"] == "gpuplan-controller"]
    assert [(f["operation"], f["fieldsV1"]) for f in owners] == [("Apply", {"f:spec": {"f:planned": {}}})]


def test_the_state_knows_at_once_and_needs_no_pass_for_it(bench: Bench) -> None:
    ready(bench)
    bench.window.take()
    write(bench, change(item(0, 3)))
    known = bench.state.cluster.plan("n1")
    assert isinstance(known, PlanReading)
    assert known.version == bench.cluster.get_plan()["metadata"]["resourceVersion"]
    assert [entry.index for entry in known.planned] == [0]
    assert not bench.window.open


def test_what_the_watch_brings_of_our_own_write_is_not_parsed_again(bench: Bench) -> None:
    ready(bench)
    write(bench, change(item(0, 3)))
    known = bench.state.cluster.plan("n1")
    read = bench.state.read_plan(bench.cluster.get_plan())
    assert read is known is not None
    view = bench.state.cluster.plan_views()["n1"]
    bench.state.observe_plan("n1", read)
    assert bench.state.cluster.plan_views()["n1"] is view


def test_an_unchanged_plan_is_not_written(bench: Bench) -> None:
    ready(bench)
    write(bench, change(item(0, 3)))
    before = bench.cluster.get_plan()["metadata"]["resourceVersion"]
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.UNCHANGED]
    assert bench.cluster.get_plan()["metadata"]["resourceVersion"] == before


def test_an_item_that_did_not_change_is_sent_as_it_is_stored(bench: Bench) -> None:
    odd = {"index": 1, "uuid": item(1)["uuid"], "mig": {"instances": [{"profile": "1g.10gb", "count": 1}]}}
    ready(bench, planned={"gpus": [odd]})
    kept = PlannedGpu(index=1, uuid="", desired=planned(item(1, 0)).desired)
    outcome = write(bench, NodeChange(node="n1", gpus=(planned(item(0, 3)), kept), changed=(0,)))
    assert outcome[0].written is Written.APPLIED
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3), odd]


def test_pinned_indexes_are_left_out(bench: Bench) -> None:
    ready(bench, gpus=[{"index": 1, "whole": {}}], planned={"gpus": [item(1, 0)]})
    write(bench, change(item(0, 3), item(1, 0), changed=(0,)))
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]


def test_a_card_that_is_pinned_at_another_index_is_left_out(bench: Bench) -> None:
    card = item(1)["uuid"]
    ready(bench, gpus=[{"index": 7, "uuid": card, "whole": {}}], planned={"gpus": [item(1, 0), item(0, 3)]})
    bench.cluster.agent_status("n1", status(gpu(0), gpu(1)))
    bench.load()
    reading = bench.state.cluster.plan("n1")
    assert reading is not None
    assert reading.stale_items == (1,)
    assert writer(bench).drop_pinned(reading).written is Written.APPLIED
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]


@pytest.mark.parametrize("spec", [{"mode": "Manual"}, {"paused": True}])
def test_manual_and_paused_plans_are_left_alone(bench: Bench, spec: Json) -> None:
    ready(bench, **spec)
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.NOT_OURS]
    assert "planned" not in bench.cluster.get_plan()["spec"]


def test_a_plan_of_a_node_that_is_not_enabled_any_more(bench: Bench) -> None:
    ready(bench)
    snapshot = bench.state.cluster.snapshot()
    label = {"metadata": {"labels": {"gpuplan.dev/gpu-partitioning": None}}}
    apply.merge_patch(bench.cluster.api, paths.node("n1"), label)
    bench.load()
    assert [o.written for o in write(bench, change(item(0, 3)), snapshot=snapshot)] == [Written.NOT_OURS]


def test_non_leader_writes_nothing(bench: Bench) -> None:
    ready(bench)
    bench.leads = False
    assert [o.written for o in write(bench, change(item(0, 3)))] == [Written.UNSENT]
    assert "planned" not in bench.cluster.get_plan()["spec"]


@pytest.mark.parametrize("spec", [{"mode": "Manual"}, {"paused": True}, {}])
def test_pinned_items_are_dropped_in_every_mode(bench: Bench, spec: Json) -> None:
    ready(bench, gpus=[{"index": 1, "whole": {}}], planned={"gpus": [item(0, 3), item(1, 0)]}, **spec)
    reading = bench.state.cluster.plan("n1")
    assert reading is not None
    assert reading.stale_items == (1,)
    assert writer(bench).drop_pinned(reading).written is Written.APPLIED
    assert bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    again = bench.state.cluster.plan("n1")
    assert again is not None
    assert again.stale_items == ()
