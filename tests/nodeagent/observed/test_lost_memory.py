"""Files that are gone, or not of one time, are no proof that nothing is held: everything is doubted, once."""

import json
import shutil

import pytest

from nodeagent.device_plugin.ledger import Ledger
from nodeagent.handover.config import read_ledger_mark
from nodeagent.observed.pods import NodePod
from tests.drawn import cells, thorough
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import mig, mps, pod_json, whole
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

PAIR = "are not of one time"


def blind(world: World) -> str:
    return world.agent.observer.observe().usage.blind


@pytest.fixture
def orphan(world: World) -> tuple[str, str]:
    """A pod that was deleted by force, and runs on; the driver does not see it."""
    ledger = Ledger(world.state.plugin, clock=world.clock)
    holder = world.pod(THREE)
    ledger.record(THREE, world.running[holder])
    world.settle(3)
    world.force_delete(holder, seen_by_driver=False)
    return holder


@pytest.mark.parametrize(
    "lost", ["both", "ledger, put back", "whole directory", *thorough("memory", "ledger", "ledger, begun again")]
)
def test_a_holder_that_only_the_lost_files_knew_keeps_its_device(
    world: World, orphan: tuple[str, str], lost: str
) -> None:
    earlier = world.state.plugin.ledger.read_bytes()
    if lost == "ledger, put back":
        Ledger(world.state.plugin, clock=world.clock).record(THREE, ["MIG-x"])
        world.settle(2)
        world.state.plugin.ledger.write_bytes(earlier)
    if lost in ("both", "memory", "whole directory"):
        world.state.holdings.unlink()
    if lost in ("both", "ledger", "ledger, begun again", "whole directory"):
        world.state.plugin.ledger.unlink()
    if lost == "ledger, begun again":
        ledger = Ledger(world.state.plugin, clock=world.clock)
        for _ in range(9):
            ledger.record(THREE, ["MIG-x"])
    if lost == "whole directory":
        shutil.rmtree(world.state.root)
        world.state.plugin.directory.mkdir(parents=True)
        world.plugin.step()
    world.restart()
    replace_both(world)

    world.wait(3600, times=3)
    assert world.running[orphan][0] in {instance.uuid for instance in world.gpu().instances}
    if lost != "ledger, put back":
        assert PAIR in blind(world) or "p1" in world.gpu_status()["message"]

    world.end_container(orphan)
    world.wait(61)
    assert world.layout() == "7g.80gb at 0"
    assert blind(world) == ""


def test_a_memory_that_is_deleted_under_a_running_agent_is_written_again(world: World) -> None:
    world.pod(THREE)
    world.settle(3)
    before = world.state.holdings.read_bytes()
    world.state.holdings.unlink()

    world.settle(1)

    assert world.state.holdings.read_bytes() == before


def test_nothing_is_destroyed_while_a_pod_that_nothing_knows_runs(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.tree.start(4711, uid_of(99), program="train.py")
    world.restart()
    replace_both(world)
    world.wait(3600)

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    message = world.gpu_status()["message"]
    assert PAIR in message
    assert f"process 4711 (train.py, since 1970-01-12T13:46:40Z) is left of pod UID {uid_of(99)}" in message


def test_a_pod_that_the_api_knows_is_no_stranger(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.pods_late = True
    world.pod(THREE)
    world.restart()
    world.settle(2)
    assert blind(world) == ""


def test_a_pod_that_the_api_alone_knows_is_a_stranger_once_the_kubelet_does_not_list_it(
    world: World, orphan: tuple[str, str]
) -> None:
    """The API server answers from the moment before the force deletion."""
    uid = getattr(world.running[orphan], "uid", "")
    world.fresh_pods = lambda: (NodePod(uid=uid, namespace=orphan[0], name=orphan[1]),)  # type: ignore[method-assign]
    world.state.holdings.unlink()
    world.plugin.allocations.clear()
    world.state.plugin.ledger.unlink()
    world.restart()
    replace_both(world)
    world.wait(3600)
    assert world.running[orphan][0] in {instance.uuid for instance in world.gpu().instances}

    world.end_container(orphan)
    world.wait(61)
    assert world.layout() == "7g.80gb at 0"


def test_an_api_server_that_does_not_answer_rules_out_no_pod(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.tree.start(4711, uid_of(99))
    world.api_refuses = "503"
    world.restart()
    world.settle(2)

    assert blind(world).endswith("are not of one time, and 503")


def test_a_first_installation_is_not_delayed(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    assert not world.state.holdings.exists()
    assert blind(world) == ""
    assert json.loads(world.state.holdings.read_text())["bootId"] == "boot-1"


def test_files_of_the_version_before_are_doubted_for_one_pass_at_most(world: World) -> None:
    world.pod(THREE)
    world.settle(3)
    memory = json.loads(world.state.holdings.read_text())
    world.state.holdings.write_text(json.dumps({k: v for k, v in memory.items() if k not in ("bootId", "ledger")}))
    world.restart()

    assert blind(world) == ""
    assert json.loads(world.state.holdings.read_text())["pods"] == memory["pods"]


def test_it_is_settled_once_and_stays_so_over_a_restart(world: World) -> None:
    world.settle(2)
    world.tree.start(4711, uid_of(99))
    world.restart()

    assert blind(world) == ""


def test_a_file_of_an_earlier_boot_proves_nothing_of_this_one(world: World) -> None:
    world.settle(2)
    world.tree.start(4711, uid_of(99))
    world.plugin.boot = "boot-2"
    world.restart()

    assert PAIR in blind(world)


def test_where_processes_are_not_seen_time_has_to_do(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.kubelet.same_processes = False
    world.restart()
    assert PAIR in blind(world)
    world.run(61)
    assert blind(world) == ""


def test_a_young_kubelet_answers_nothing(world: World) -> None:
    world.state.holdings.unlink(missing_ok=True)
    world.kubelet.age_seconds = 1.0
    world.restart()
    world.settle(3)
    world.tree.start(4711, uid_of(99))
    world.kubelet.age_seconds = 3600.0

    assert PAIR in blind(world)


def test_a_ledger_counts_its_writes_and_has_a_name(world: World) -> None:
    ledger = Ledger(world.state.plugin)
    ledger.record(THREE, ["a"])
    first = read_ledger_mark(world.state.plugin)
    Ledger(world.state.plugin).record(THREE, ["b"])
    second = read_ledger_mark(world.state.plugin)
    world.state.plugin.ledger.unlink()
    Ledger(world.state.plugin).record(THREE, ["a"])
    third = read_ledger_mark(world.state.plugin)

    assert (first.writes, second.writes, third.writes) == (2, 3, 2)
    assert second.follows(first)
    assert not first.follows(second)
    assert not third.follows(first)


HALVES = mig(0, ("3g.40gb", 0), ("3g.40gb", 4))
CHANGES = {
    "halves stay": (HALVES, THREE, HALVES),
    "halves to go": (HALVES, THREE, mig(0, ("7g.80gb", 0))),
    "slices stay": (mps(0, 10, 10), "nvidia.com/gpu-10gb", mps(0, 10, 10)),
    "slices to a whole GPU": (mps(0, 10), "nvidia.com/gpu-10gb", whole(0)),
    "a whole GPU to slices": (whole(0), "nvidia.com/gpu", mps(0, 10)),
}
HOLDERS = ["lives", "lives, processes hidden", "deleted by force", "not reported", "not reported, processes hidden"]
"""The last ones are of a kubelet that cannot write to the API: there they look as if it had not taken them yet."""


@pytest.mark.parametrize(("change", "holder", "young"), cells([*CHANGES], HOLDERS, [False, True]), ids=str)
def test_every_record_and_the_checkpoint_lost_at_once_give_nothing_away(
    make_world: MakeWorld, change: str, holder: str, young: bool
) -> None:
    """No record names the device of the pod, and the driver does not show its process; `young`: the kubelet starts."""
    before, resource, after = CHANGES[change]
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)) if before is HALVES else plain())
    world.apply(before)
    world.settle(4)
    key = world.pod(resource)
    world.settle(4)
    (device,) = world.running[key]
    world.detach(key)
    if holder == "deleted by force":
        world.force_delete(key)
    if holder.startswith("not reported"):
        world.pods[key]["status"] = {"phase": "Pending"}
    world.kubelet.same_processes = not holder.endswith("processes hidden")
    lose_everything(world, age_seconds=0.0 if young else 3600.0)
    world.apply(after)

    for _ in range(15):
        world.run(5.0)
        offered = {i for ids in world.kubelet.devices.values() for i in ids}
        assert not [i for i in offered if i.startswith(device.partition("::")[0])]
        assert world.kubelet.age_seconds is not None
        world.kubelet.age_seconds += 5.0
    if holder != "deleted by force":
        verb = "may run" if holder.startswith("not reported") else "runs"
        assert f"pod default/p1 {verb}, and no record names its devices" in world.gpu_status()["message"]
        world.finish(key)
    world.end_container(key)
    world.kubelet.same_processes = True
    world.wait(61)
    world.wait(61)
    assert world.found() == ("Ready", "Confirmed")


def lose_everything(world: World, *, age_seconds: float) -> None:
    """All three programs start, with nothing but the API's answers."""
    shutil.rmtree(world.state.root)
    world.state.plugin.directory.mkdir(parents=True)
    world.plugin.restart()
    world.kubelet.lose_checkpoint()
    world.kubelet.age_seconds = age_seconds
    world.restart()


def test_a_pod_that_the_watch_has_not_brought_is_looked_at_before_anything_is_believed(world: World) -> None:
    """An API server that lags answers the agent's first list; the kubelet has lost its record of this pod."""
    key = world.pod(THREE)
    world.settle(4)
    late, world.pods = world.pods, {}
    lose_everything(world, age_seconds=3600.0)
    world.settle(1)
    world.pods, world.pods_late = late, True
    world.settle(3)
    assert "is of a pod that the watch has not brought" in blind(world)

    world.pods_late = False
    world.settle(4)
    assert "pod default/p1 runs, and no record names its devices" in blind(world)
    assert world.advertised() == {}
    world.finish(key)
    world.wait(61)
    assert blind(world) == ""


@pytest.mark.parametrize("waits", ["bound", "its sandbox runs", "no pod's process is seen"])
def test_pods_that_no_kubelet_has_admitted_yet_hold_nothing(make_world: MakeWorld, waits: str) -> None:
    """Or every new node would be closed to those that wait for it; one with a process was admitted."""
    world = make_world(cut(("3g.40gb", 0)))
    world.bind(THREE)
    if waits != "no pod's process is seen":
        system = pod_json(("kube-system", "proxy"), "cpu", 1, uid=uid_of(2))
        world.pods["kube-system", "proxy"] = system
        world.tree.start(4712, uid_of(2))
    if waits == "its sandbox runs":
        world.tree.start(4711, uid_of(1), program="pause")
    world.settle(4)

    assert (blind(world) == "") == (waits == "bound")
    assert world.advertised() == ({THREE: 1} if waits == "bound" else {})


def test_a_pod_whose_processes_may_be_elsewhere_is_in_doubt_while_nothing_says_that_it_has_not_begun(
    make_world: MakeWorld,
) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    key = world.bind(THREE)
    world.pods[key]["spec"]["runtimeClassName"] = "kata"
    world.settle(4)
    assert "pod default/p1 may run, and no record names its devices" in blind(world)

    del world.pods[key]
    world.settle(4)
    assert blind(world) == ""
