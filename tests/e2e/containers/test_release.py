"""The image of a release in real containers: pulled by its digest from a registry, run as the release's chart says.

Debian's Python and the locked wheels are the image's own; nothing of this machine is in it. Only the controller is
waited for: an agent finds no driver in this image, as simulated GPUs need the sandbox, which does not ship.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from partitioning import __version__
from tests.e2e.chart_release import NAME
from tests.e2e.containers.lab import Lab
from tests.e2e.rig import registry
from tests.waiting import eventually

CONTROLLER = "deploy/gpuplan-controller"
SECONDS = 180.0


@pytest.fixture(scope="module")
def address(lab: Lab) -> Iterator[str]:
    with registry.serving({"gpuplan": lab.release_folder / "image"}) as found:
        lab.node.trust(found)
        yield found


def image_ids(lab: Lab, program: str) -> set[str]:
    """Of the pods of a program that are Ready."""
    found = set()
    for name in lab.pods_of(program):
        pod = json.loads(lab.cluster.kubectl("-n", "gpuplan-system", "get", name, "-o", "json") or "{}")
        statuses = pod.get("status", {}).get("containerStatuses", [])
        found |= {status["imageID"] for status in statuses if status["ready"]}
    return found


def test_the_released_controller_runs(lab: Lab, address: str) -> None:
    lab.install()
    chart: Path = lab.release_folder / f"gpuplan-{__version__}.tgz"
    image = f"{address}/gpuplan@{registry.entry(lab.release_folder / 'image')['digest']}"
    lab.release.helm("upgrade", NAME, str(chart), values={"image": {"repository": f"{address}/gpuplan"}})
    try:
        eventually(
            lambda: image_ids(lab, CONTROLLER) == {image},
            f"the controller is Ready from {image}",
            SECONDS,
            seen=lambda: lab.kubectl("-n", "gpuplan-system", "get", "events"),
        )
    finally:
        lab.upgrade({})
    eventually(lambda: lab.are_ready(CONTROLLER), "the image of this checkout runs again", SECONDS)
