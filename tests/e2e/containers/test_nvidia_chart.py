"""NVIDIA's device plugin and gpuplan in one cluster, each by its own chart: a node goes from theirs to ours and back.

docs/moving.md is followed literally, but that gpuplan is removed before the last pod has ended. The tests are one
story: theirs serves a node that is not enabled; on an enabled one ours waits until the remedy is given, and serves what
is free; it is removed, and theirs serves again. What either gave to a pod, no other pod gets while that one runs.
"""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sandbox.driver import machine
from tests.e2e.containers import nvidia_chart, simulated
from tests.e2e.containers.lab import VALUES, Lab
from tests.e2e.containers.nvidia_chart import DRIVER, Installed
from tests.e2e.containers.test_product import AGENT, PLUGIN, WHOLE, given, pod
from tests.e2e.real_cluster import ROOT
from tests.e2e.rig.containers.node import NODE
from tests.e2e.rig.controlplane import Missing
from tests.waiting import eventually

CONFLICT = "OwnershipConflict"
SECONDS = 180.0
HEADING = "From the chart of NVIDIA's device plugin"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def section() -> str:
    """Of the page."""
    (found,) = [
        part for part in re.split(r"(?m)^## ", (ROOT / "docs/moving.md").read_text()) if part.startswith(HEADING)
    ]
    return found


def commands() -> list[list[str]]:
    """Its kubectl commands for the node of the lab, in their order."""
    found = re.findall(r"`(kubectl [^`]+)`", section())
    return [shlex.split(each.replace("NODE", NODE))[1:] for each in found]


def values() -> dict[str, Any]:
    """What the page adds to the chart's."""
    (text,) = re.findall(r"(?ms)^```yml\n(.*?)^```", section())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture(scope="module", autouse=True)
def theirs(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Installed in the cluster of gpuplan, which has no node."""
    found = lab.device_plugin
    if isinstance(found, Missing):
        pytest.skip(found.message)
    lab.install()
    programs = {f"/usr/bin/{name}": found.programs / name for name in ("config-manager", "nvidia-device-plugin")}
    image = nvidia_chart.image(lab, "registry.test/k8s-device-plugin", programs, tmp_path_factory.mktemp("image"))
    config = {"default": "version: v1\nflags: {migStrategy: mixed}\n"}
    settings = {"image": image, "nvidiaDriverRoot": str(DRIVER), "config": {"map": config}}
    with nvidia_chart.driver(lab):
        release = Installed(lab, "nvidia-device-plugin", found.chart, settings)
        yield release
        lab.kubectl("delete", "pods", "--all", "--wait=true")
        release.remove()
    if lab.release.remaining() == []:
        lab.release.install(VALUES)


def run(lab: Lab, name: str) -> None:
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod(name, WHOLE)))
    lab.wait_running(name)


def gpu_of(lab: Lab, name: str) -> str:
    """The UUID of the GPU that a pod was given: by its environment from theirs, as a device node from ours."""
    environment, nodes = given(lab, name)
    if environment[VISIBLE] != "void":
        return environment[VISIBLE]
    (minor,) = [numbers[1] for path, numbers in nodes.items() if re.fullmatch(r"/dev/nvidia\d+", path)]
    (uuid,) = [gpu["uuid"] for gpu in machine.observe(simulated.MACHINE)["gpus"] if gpu["minor"] == minor]
    return uuid


def test_theirs_serves_a_node_that_is_not_enabled(lab: Lab, theirs: Installed) -> None:
    eventually(lambda: lab.allocatable(WHOLE) == 2, "theirs has registered", SECONDS, seen=theirs.said)

    run(lab, "first")

    (line,) = theirs.pods()
    assert line.count("running") == 2, "config-manager and the plugin"
    assert gpu_of(lab, "first").startswith("GPU-")
    assert not lab.pods_of(AGENT) | lab.pods_of(PLUGIN)


def test_enabled_the_node_stays_theirs_until_the_remedy_is_given(lab: Lab, theirs: Installed) -> None:
    off, on, *_ = commands()
    lab.kubectl(*on)

    message = eventually(lambda: lab.message_of(CONFLICT, "True"), "the conflict is reported", SECONDS, seen=lab.report)
    (remedy,) = re.findall(r"label the node (\S+=false)", message)
    assert off == ["label", "node", NODE, remedy, "--overwrite"], "the page has the command of the message"
    assert lab.allocatable(WHOLE) == 2
    assert theirs.pods()

    theirs.change(values())
    lab.kubectl(*off)

    eventually(lambda: not theirs.pods(), "theirs leaves", SECONDS, seen=theirs.pods)
    eventually(lambda: not lab.condition(CONFLICT), "the conflict is over", SECONDS, seen=lab.report)
    eventually(lambda: lab.allocatable(WHOLE) == 2, "ours serves", SECONDS, seen=lab.report)
    eventually(lambda: lab.used(WHOLE) == 1, "what theirs gave is in use", SECONDS, seen=lab.plan)
    run(lab, "second")
    assert given(lab, "second")[0][VISIBLE] == "void", "from ours"
    assert gpu_of(lab, "second") != gpu_of(lab, "first")


def test_removed_theirs_serves_again_and_gives_nothing_twice(lab: Lab, theirs: Installed) -> None:
    held = {name: (gpu_of(lab, name), lab.container_ids(name)) for name in ("first", "second")}
    *_, disable, back = commands()
    lab.kubectl(*disable)
    eventually(
        lambda: all(f"pod default/{name}" in lab.message_of("HandedBack", "False") for name in held),
        "the pods are named",
        SECONDS,
        seen=lab.plan,
    )

    lab.remove()
    lab.kubectl(*back)

    eventually(lambda: lab.allocatable(WHOLE) == 2, "theirs has registered again", SECONDS, seen=theirs.said)
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod("third", WHOLE)))
    eventually(lambda: "Insufficient nvidia.com/gpu" in waits(lab, "third"), "no GPU is left for it", SECONDS)
    assert {name: (gpu_of(lab, name), lab.container_ids(name)) for name in held} == held
    lab.kubectl("delete", "pod", "second", "--wait=true")
    lab.wait_running("third")
    assert gpu_of(lab, "third") == held["second"][0], "the one that was free, not the one in use"


def waits(lab: Lab, name: str) -> str:
    """Why the scheduler has no place for a pod."""
    shown = json.loads(lab.kubectl("get", "pod", name, "-o", "json"))
    return " ".join(str(each.get("message")) for each in shown["status"].get("conditions", []))
