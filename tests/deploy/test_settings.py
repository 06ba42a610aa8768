"""The settings files in deploy/manifests are read by the programs that get them."""

import yaml

from controller.config.settings import read_settings as read_controller
from kube.settings import read
from nodeagent.settings import Settings
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

FILES = {
    body["metadata"]["name"]: yaml.safe_load(body["data"]["config.yaml"])
    for body in manifests_of(MANIFESTS)
    if body["kind"] == "ConfigMap"
}


def test_the_controllers() -> None:
    settings = read_controller(FILES["gpuplan-controller"])
    assert (settings.metrics_address, settings.leader_election.enabled) == ("0.0.0.0", True)


def test_the_agents() -> None:
    settings = read(Settings, FILES["gpuplan-agent"])
    assert (settings.metrics_address, settings.write_allocatable) == ("0.0.0.0", False)
