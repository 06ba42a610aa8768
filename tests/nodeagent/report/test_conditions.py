"""What the conditions report: which generation, since when, and a message that names what to do."""

import pytest

from crds.v1alpha1.names import FOREIGN_PARTITIONING_LABELS, LABEL_PARTITIONING, Condition
from docs.generate.conditions import WHERE_ABSENT
from kube.errors import ApiError, Forbidden, Unavailable
from nodeagent.advertise.counts_right import POLICY, REFUSAL
from nodeagent.handover.config import Problem
from tests import incidents
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import mig
from tests.nodeagent.report.schema import check
from tests.nodeagent.report.test_operator_labels import label

REFUSED = Forbidden(f"{POLICY} with binding 'b' denied request: {REFUSAL}")


def test_a_problem_of_the_plugin_as_a_whole_is_shown_and_costs_no_readiness(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.plugin.problems = (Problem(message="registrations are not verified"),)
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle()

    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Advertised")["status"] == "True"
    assert world.condition("Advertised")["message"] == "device plugin: registrations are not verified"


def test_ready_carries_the_generation_and_moves_its_time_with_its_status_only(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    first = world.condition("Ready")

    world.apply(mig(0, ("3g.40gb", 4)), planned=[])
    world.run()
    again = world.condition("Ready")
    assert (again["status"], again["observedGeneration"]) == ("True", 2)
    assert again["lastTransitionTime"] == first["lastTransitionTime"]

    world.apply(mig(0, ("7g.80gb", 0)))
    world.run()
    busy = world.condition("Ready")
    assert (busy["status"], busy["observedGeneration"]) == ("False", 3)
    assert busy["lastTransitionTime"] != first["lastTransitionTime"]
    assert world.condition("Reconciling")["status"] == "True"
    assert world.status()["observedGeneration"] == 3


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({LABEL_PARTITIONING: "MIG"}, "label gpuplan.dev/gpu-partitioning=MIG is not understood: use one of mig"),
        (dict(zip(FOREIGN_PARTITIONING_LABELS, ("mig", "mps"), strict=False)), "disagree"),
        ({LABEL_PARTITIONING: "mig"}, ""),
    ],
    ids=["not understood", "disagree", "mig"],
)
def test_a_node_on_which_nothing_is_planned_says_so_and_stays_ready(
    make_world: MakeWorld, labels: dict[str, str], words: str
) -> None:
    world = make_world(*empty())
    label(world, labels)
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()

    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("True", "NotPlanned" if words else "Confirmed")
    assert words in ready["message"]
    assert ready["message"].startswith("1 GPU matches the plan")


def test_conditions_that_have_nothing_to_say_are_left_out(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply()
    world.run()

    world.settle()
    kinds = {condition["type"] for condition in world.status()["conditions"]}
    assert kinds == set(Condition) - set(WHERE_ABSENT) - {Condition.AGENT_ALIVE}


@pytest.mark.parametrize(
    ("policy", "switched_on", "expected", "named"),
    [
        pytest.param(REFUSED, True, ("True", ""), "", id="refused by the policy"),
        pytest.param(REFUSED, False, ("False", "Idle"), "writeAllocatable is false", id="switched off"),
        pytest.param(None, True, ("False", "PolicyMissing"), "install the policies", id="no policy"),
        pytest.param(Forbidden("User x cannot patch"), True, ("False", "NotPermitted"), "grant", id="RBAC"),
        pytest.param(Unavailable("down"), True, ("False", "Starting"), "not answered yet", id="no answer"),
    ],
)
def test_whether_the_node_is_written_is_a_condition_with_its_remedy(
    make_world: MakeWorld, policy: ApiError | None, switched_on: bool, expected: tuple[str, str], named: str
) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    writes = expected[0] == "True"
    world.policy, world.write_allocatable, world.node_ticks = policy, switched_on, not writes
    world.restart()
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()

    found = world.condition("AllocatableWritten")
    assert (found["status"], found["reason"]) == expected
    assert named in found["message"]
    assert ("allocatable" in world.effect.done) == writes
    assert world.condition("Ready")["status"] == "True", "without it the kubelet's tick does the same"


def test_agent_that_does_not_see_processes_says_so_and_destroys_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("1g.10gb", 0), ("1g.10gb", 1)))
    world.kubelet.same_processes = False
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle(20)
    assert world.layout() == "1g.10gb at 0, 1g.10gb at 1"
    found = world.condition("HostAccess")
    assert (found["status"], found["reason"]) == ("False", "HostNotVisible")
    assert "run its pod with hostPID: true" in found["message"]
    world.kubelet.same_processes = True
    world.settle()
    assert world.layout() == "3g.40gb at 0"
    assert world.condition("HostAccess")["status"] == "True"


def test_drift_is_shown_while_it_is_healed(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    gpu = world.gpu()
    world.driver.create_gpu_instance(gpu.uuid, gpu.instances[0].placed.__class__(start=0, size=1, profile="1g.10gb"))
    half = next(instance for instance in world.gpu().instances if instance.half_made)
    world.driver.create_compute_instance(gpu.uuid, half.id)

    world.run()
    assert world.condition("Drifted")["status"] == "True"
    world.settle()
    assert world.condition("Drifted")["status"] == "False"
    assert world.layout() == "3g.40gb at 4"


def test_another_plugin_on_the_node_is_an_ownership_conflict(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply()
    world.settle()

    for _ in range(70):
        world.plugin.step()
        world.kubelet.step()
        world.kubelet.devices["nvidia.com/gpu"] = (*world.kubelet.devices["nvidia.com/gpu"], "GPU-ffff")
        world.pass_only()
        world.clock.now += 0.5

    assert world.condition("OwnershipConflict")["status"] == "True"
    assert "another device plugin advertises nvidia.com/gpu too" in world.condition("OwnershipConflict")["message"]


def test_alongside_another_plugin_ours_advertises_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    three = "nvidia.com/mig-3g.40gb"
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()

    for n in range(90):
        world.step()
        if n % 2 or not world.advertised():
            world.kubelet.devices[three] = (f"MIG-{n}::0",)
        if n == 80:
            world.apply(mig(0, ("7g.80gb", 0)))
        world.pass_only()

    assert world.plugin.advertised() == {three: ()}
    assert world.layout() == "3g.40gb at 4"
    assert world.found() == ("Failed", "ForeignOwner")
    assert world.condition("Ready")["status"] == "False"
    assert not world.tainted()

    world.clock.now += 31
    world.settle(12)
    assert world.advertised() == {"nvidia.com/mig-7g.80gb": 1}
    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize(
    ("managed", "gpus", "message"),
    [
        (1, 1, "1 GPU matches the plan."),
        (1, 2, "1 GPU matches the plan (1 unmanaged)."),
        (2, 4, "2 GPUs match the plan (2 unmanaged)."),
        (0, 1, "No GPU is in the plan (1 unmanaged)."),
    ],
)
def test_one_gpu_is_and_two_are(make_world: MakeWorld, managed: int, gpus: int, message: str) -> None:
    world = make_world(*empty(gpus))
    world.apply(*(mig(index, ("7g.80gb", 0)) for index in range(managed)))
    world.settle()

    assert world.condition("Ready")["message"] == message


@pytest.mark.slow
def test_while_the_device_plugin_is_down_one_sentence_names_its_pod(make_world: MakeWorld) -> None:
    world = make_world(*empty(3))
    world.apply(*(mig(index, "1g.10gb*7") for index in range(3)))
    world.settle()
    world.events.clear()
    world.plugin.alive = False

    for _ in range(80):
        world.run()

    ready = world.condition("Ready")
    assert ready["reason"] == "AdvertiseTimeout"
    assert ready["message"] == (
        "GPUs 0, 1, 2: the kubelet does not show any of its devices (nvidia.com/mig-1g.10gb) after 30 s: see whether "
        "the device plugin runs (pod of DaemonSet gpuplan-device-plugin on this node), its log and the kubelet's, and "
        "whether another plugin serves these resources"
    )
    warned = [(reason, message) for _, reason, message in world.events]
    assert [reason for reason, _ in warned] == ["AdvertiseTimeout"] * 3
    assert "DaemonSet gpuplan-device-plugin" in warned[0][1]
    check(world)


def test_a_config_that_waits_for_the_device_plugin_names_its_pod_soon(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, "1g.10gb*7"))
    world.settle()
    world.plugin.alive = False
    world.apply(mig(0, "1g.10gb*6"))
    world.settle(5)
    assert world.found() == ("Changing", "Withdrawing")
    assert "DaemonSet" not in world.condition("Ready")["message"]

    world.settle(12)
    assert world.found() == ("Changing", "Withdrawing")
    assert "DaemonSet gpuplan-device-plugin" in world.condition("Ready")["message"]

    world.events.clear()
    world.clock.now += 61
    world.settle(3)
    assert world.found() == ("Failed", "DevicePluginError")
    assert [reason for _, reason, _ in world.events] == ["DevicePluginError"]

    world.plugin.alive = True
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def test_a_lost_gpu_is_named_once_with_what_to_do(make_world: MakeWorld) -> None:
    world = make_world(*empty(2))
    world.apply(mig(0, "1g.10gb"), mig(1, "1g.10gb"))
    world.settle()
    incidents.lose(world.machine, world.gpu(0).uuid)
    for _ in range(20):
        world.run()

    assert world.found(0) == ("Failed", "Unhealthy")
    message = world.condition("Ready")["message"]
    assert message.startswith("GPU 0: GPU is lost: label the node gpuplan.dev/driver=closed, drain it, ")
    assert message.count("GPU 0") == 1
    assert world.condition("GPUsHealthy")["status"] == "False"
    check(world)
