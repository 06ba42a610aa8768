"""What is advertised can be used by a container by CDI names that resolve; else it is withheld, with the reason."""

import pytest

from nodeagent.handover.cdi import FILE_NAME
from nodeagent.handover.config import DeviceListStrategy, PluginConfig, read_config
from sandbox.driver import toolkit
from sandbox.driver.install import install
from sandbox.driver.machine import DRIVER_VERSION
from sandbox.driver.procfs import capability_minor, proc_of
from sandbox.driver.store import Store
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.items import mig, mps, whole
from tests.nodeagent.passes.by_cdi import MIG_RESOURCE, advertised_ids, by_cdi, named, nodes, strategy


def test_advertised_instances_have_entries_with_their_capabilities(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(*empty()))
    world.apply(mig(0, ("1g.10gb", 2), ("3g.40gb", 4)))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert strategy(world) == "cdi-cri"
    for instance in world.gpu().instances:
        assert instance.uuid is not None
        minor = capability_minor(0, instance.id)
        assert nodes(world, instance.uuid) | {
            "/dev/nvidia0": (195, 0),
            f"/dev/nvidia-caps/nvidia-cap{minor}": (511, minor),
            f"/dev/nvidia-caps/nvidia-cap{minor + 1}": (511, minor + 1),
        } == nodes(world, instance.uuid)
    assert named(world) == set(advertised_ids(world))


def test_whole_gpu_and_its_slices_change_places_in_the_specification(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(plain()))
    world.settle()
    (alone,) = advertised_ids(world)
    assert named(world) == {alone}
    world.apply(mps(0, 20, 10))
    world.settle()
    assert named(world) == set(advertised_ids(world))
    assert len(named(world)) == 2
    assert all("::" in name for name in named(world))


def test_new_instance_at_an_old_place_never_has_the_old_entry(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("3g.40gb", 4), ("1g.10gb", 0))))
    world.settle()
    world.apply(mig(0, ("4g.40gb", 0), ("1g.20gb", 4), ("1g.10gb", 6)))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert named(world) == {i.uuid for i in world.gpu().instances}


def test_entry_of_a_doomed_instance_that_cannot_be_removed_keeps_it_alive(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("1g.10gb", 0), ("1g.10gb", 1))))
    world.settle()
    blocker = world.cdi / f".{FILE_NAME}.tmp"
    blocker.mkdir()
    world.apply(mig(0, ("1g.10gb", 0), ("3g.40gb", 4)))
    world.settle(12)
    assert world.layout() == "1g.10gb at 0, 1g.10gb at 1, 3g.40gb at 4"
    assert world.found() == ("Failed", "DriverError")
    assert "cannot be written" in world.gpu_status()["message"]
    blocker.rmdir()
    world.settle()
    assert world.layout() == "1g.10gb at 0, 3g.40gb at 4"
    assert world.found() == ("Ready", "Confirmed")


def test_entry_that_cannot_be_removed_stops_no_other_gpu(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("1g.10gb", 0), ("1g.10gb", 1)), *empty()))
    world.settle()
    (world.cdi / f".{FILE_NAME}.tmp").mkdir()
    world.apply(mig(0, ("1g.10gb", 0)))
    world.settle(12)
    world.apply(mig(0, ("1g.10gb", 0)), mig(1, ("3g.40gb", 4)))
    world.settle(12)
    assert world.layout(0) == "1g.10gb at 0, 1g.10gb at 1"
    assert world.layout(1) == "3g.40gb at 4"


def test_nothing_is_advertised_while_the_drivers_files_are_unknown(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(plain()), toolkit_version="")
    world.apply(whole(0))
    world.settle(10)
    assert world.advertised() == {}
    assert world.found() == ("Advertising", "CDIUnavailable")
    assert world.condition("Advertised")["reason"] == "CDIUnavailable"
    assert "nvidia-ctk cdi generate" in world.condition("Advertised")["message"]
    world.clock.now += 120
    world.settle(3)
    assert world.found() == ("Failed", "CDIUnavailable")
    assert world.condition("Stalled")["status"] == "True"
    toolkit.install(world.cdi.parent / "driver", world.cdi, DRIVER_VERSION)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}
    assert world.found() == ("Ready", "Confirmed")


def test_upgraded_driver_withdraws_until_nvidias_files_follow(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(plain()))
    world.settle()
    with Store(world.machine).writing() as state:
        state["driver_version"] = "595.91.07"
    world.undo()
    world.undo = install(Store(world.machine))  # the new agent loads the new driver's library
    world.restart()
    world.settle(8)
    assert world.advertised() == {}
    assert "is for driver" in world.condition("Advertised")["message"]
    toolkit.install(world.cdi.parent / "driver", world.cdi, "595.91.07")
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"containerRuntimeVersion": "containerd://1.6.20"}, "containerd 1.6.20 drops CDI devices without an error"),
        ({"kubeletVersion": "v1.28.15"}, "kubelet v1.28.15 does not pass CDI devices on"),
    ],
)
def test_runtime_without_cdi_is_refused_with_the_remedy(
    make_world: MakeWorld, info: dict[str, str], reason: str
) -> None:
    world = by_cdi(make_world(plain()))
    world.node["status"]["nodeInfo"] |= info
    world.settle(8)
    assert world.advertised() == {}
    assert reason in world.condition("Advertised")["message"]
    assert "deviceListStrategy: envvar" in world.condition("Advertised")["message"]


@pytest.mark.parametrize("write_allocatable", [False, True])
def test_nothing_is_advertised_before_the_node_names_its_runtime(
    make_world: MakeWorld, write_allocatable: bool
) -> None:
    world = make_world(plain())
    world.write_allocatable = write_allocatable
    by_cdi(world)
    world.latest_node.on_event(None, None, None)
    world.agent.reconcile()
    config = read_config(world.state.plugin)
    assert not isinstance(config, PluginConfig) or config.advertised() == ()
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}


def test_capability_files_that_are_not_visible_concern_mig_only(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("1g.10gb", 0)), plain()))
    (proc_of(world.machine) / "driver").rename(world.cdi.parent / "covered")
    world.settle(8)
    assert world.advertised() == {"nvidia.com/gpu": 1}
    assert "does not see the driver's capability files" in world.condition("Advertised")["message"]
    assert world.condition("HostAccess")["reason"] == "HostNotVisible"


def test_setting_envvar_withholds_nothing_and_keeps_an_old_file_true(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("1g.10gb", 0), ("1g.10gb", 1))))
    world.settle()
    world.device_list_strategy = DeviceListStrategy.ENVVAR
    world.restart()
    world.apply(mig(0, ("1g.10gb", 0), ("3g.40gb", 4)))
    world.settle()
    assert strategy(world) == "envvar"
    assert world.found() == ("Ready", "Confirmed")
    assert named(world) == {i.uuid for i in world.gpu().instances}


def test_node_without_cdi_gets_no_file(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply()
    world.settle()
    assert strategy(world) == "envvar"
    assert not world.cdi.exists()


def test_file_that_vanishes_is_written_before_the_next_list(make_world: MakeWorld) -> None:
    """As /run is empty after a boot, while config.json is not."""
    world = by_cdi(make_world(plain()))
    world.settle()
    (world.cdi / FILE_NAME).unlink()
    world.plugin.step()
    world.kubelet.step()
    assert world.advertised() == {}, "the plugin alone lists nothing that no runtime resolves"
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu": 1}


def test_device_in_use_keeps_its_entry_while_its_gpu_is_changed(make_world: MakeWorld) -> None:
    world = by_cdi(make_world(cut(("1g.10gb", 0), ("1g.10gb", 1))))
    world.settle()
    world.pod(MIG_RESOURCE)
    (held,) = world.kubelet.given()
    before = nodes(world, held)
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle(20)
    assert nodes(world, held) == before
