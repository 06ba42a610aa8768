"""A world whose containers get devices by CDI names, and what is asked of it."""

from nodeagent.handover.cdi import named_devices, qualified_name
from nodeagent.handover.config import DeviceListStrategy, PluginConfig, read_config
from nodeagent.handover.files import Unreadable
from sandbox import cdi as runtime
from sandbox.driver import toolkit
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.machine import DRIVER_VERSION, observe
from tests.nodeagent.world import World

MIG_RESOURCE = "nvidia.com/mig-1g.10gb"


def by_cdi(world: World, *, toolkit_version: str = DRIVER_VERSION) -> World:
    """A node as the GPU Operator leaves it, with a device plugin of this version."""
    if toolkit_version:
        toolkit.install(world.cdi.parent / "driver", world.cdi, toolkit_version)
    for name in ("GPU-", "mps"):
        (world.cdi.parent / name).mkdir(exist_ok=True)
    world.device_list_strategy = DeviceListStrategy.CDI_CRI
    world.plugin.cdi = world.cdi
    world.effect.check = lambda what: hold(world, what)
    world.node["status"]["nodeInfo"] |= {"containerRuntimeVersion": "containerd://2.2.9", "kubeletVersion": "v1.36.3"}
    world.apply()
    world.restart()
    return world


def hold(world: World, what: str) -> None:
    """After each effect of the agent, also one after which it dies."""
    names = named(world)
    config = read_config(world.state.plugin)
    if isinstance(config, PluginConfig) and config.device_list_strategy is DeviceListStrategy.CDI_CRI:
        advertised = {device.id for device in config.healthy()}
        if what == "config.json":
            assert advertised <= names, f"after {what}: advertised before it has an entry"
    there = {mig_device_uuid(gpu, *parts) for gpu in observe(world.machine)["gpus"] for parts in mig_devices(gpu)}
    gone = {name for name in names if name.startswith("MIG-")} - there
    assert not gone, f"after {what}: an entry of an instance that is destroyed"


def named(world: World) -> frozenset[str]:
    names = named_devices(world.cdi)
    assert not isinstance(names, Unreadable)
    return names


def nodes(world: World, device_id: str) -> dict[str, tuple[int, int]]:
    got = runtime.inject([world.cdi], [qualified_name(device_id)])
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    return {node.path: (node.major, node.minor) for node in got.nodes}


def advertised_ids(world: World) -> list[str]:
    return [i for ids in world.kubelet.devices.values() for i in ids]


def strategy(world: World) -> str:
    return str(world.status()["devicePlugin"].get("deviceListStrategy", "cdi-cri"))
