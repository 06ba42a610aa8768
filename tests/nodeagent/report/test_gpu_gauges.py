"""What an agent exports of GPUs and partitions: of the last pass, whole, and gone with what it is about."""

from benchmarks.scrape import outcome
from nodeagent.handover.mps_state import MpsDaemon, MpsState
from nodeagent.report.metrics import AgentMetrics
from tests.clock import Clock
from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.items import mig

PHASE = "gpuplan_agent_change_phase_duration_seconds_sum"


def test_states_of_gpus_and_partitions(make_world: MakeWorld) -> None:
    world = make_world(*empty(2))
    value = world.metrics.registry.get_sample_value
    world.apply(mig(0, ("3g.40gb", 4), ("1g.10gb", 0)))
    world.settle()

    assert value("gpuplan_agent_gpu_state", {"gpu": "0", "state": "Ready", "reason": "Confirmed"}) == 1
    assert value("gpuplan_agent_gpu_state", {"gpu": "1", "state": "Unmanaged", "reason": "Unmanaged"}) == 1
    assert value("gpuplan_agent_gpu_healthy", {"gpu": "1"}) == 1
    assert value("gpuplan_agent_partition_state", {"gpu": "0", "profile": "3g.40gb", "slot": "4"}) == 0
    assert value("gpuplan_agent_partitions", {"profile": "1g.10gb", "state": "Free"}) == 1
    assert value("gpuplan_agent_oldest_withdrawn_seconds") == 0

    world.apply(mig(0, ("1g.10gb", 0)))
    world.settle()
    assert value("gpuplan_agent_partition_state", {"gpu": "0", "profile": "3g.40gb", "slot": "4"}) is None


def test_the_phases_of_a_change_add_up_to_it(make_world: MakeWorld) -> None:
    world = make_world(*empty(1))
    value = world.metrics.registry.get_sample_value
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()

    phases = [value(PHASE, {"phase": phase}) or 0.0 for phase in ("actuate", "register", "allocatable")]
    assert value("gpuplan_agent_apply_duration_seconds_count") == 1
    assert sum(phases) == value("gpuplan_agent_apply_duration_seconds_sum")


def test_names_of_pods_are_exported_only_where_they_were_wanted() -> None:
    for wanted in (False, True):
        metrics = AgentMetrics("1", clock=Clock(), name_pods=wanted)
        families = {family.name for family in metrics.registry.collect()}
        assert ("gpuplan_agent_partition_pod_info" in families) is wanted


def test_mps_daemons_that_answer_and_that_do_not() -> None:
    seen = [outcome(index) for index in range(2)]
    one, other = (str(found.gpu and found.gpu.uuid) for found in seen)
    daemons = (MpsDaemon(gpu=one, ready=True), MpsDaemon(gpu=other, ready=False), MpsDaemon(gpu="GPU-x", ready=True))
    metrics = AgentMetrics("1", clock=Clock())
    metrics.found(seen, MpsState(daemons=daemons))
    value = metrics.registry.get_sample_value
    assert value("gpuplan_agent_mps_daemon_ready", {"gpu": "0"}) == 1
    assert value("gpuplan_agent_mps_daemon_ready", {"gpu": "1"}) == 0
    metrics.found(seen)
    assert value("gpuplan_agent_mps_daemon_ready", {"gpu": "1"}) is None
