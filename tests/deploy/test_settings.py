"""The settings files in deploy/manifests are read by the programs that get them."""

import yaml

from controller.config.settings import Settings as ControllerSettings
from controller.config.settings import read_settings as read_controller
from kube.settings import read
from nodeagent.settings import Settings
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

FILES = {
    body["metadata"]["name"]: yaml.safe_load(body["data"]["config.yaml"])
    for body in manifests_of(MANIFESTS)
    if body["kind"] == "ConfigMap"
}


def window(settings: ControllerSettings) -> tuple[float, float]:
    return settings.batch_window_idle_seconds, settings.batch_window_timeout_seconds


def test_the_controllers() -> None:
    settings = read_controller(FILES["gpuplan-controller"])
    assert (settings.metrics_address, settings.leader_election.enabled) == ("0.0.0.0", True)
    assert window(settings) == window(ControllerSettings()), "the chart's window is the controller's own"


def test_the_agents() -> None:
    settings = read(Settings, FILES["gpuplan-agent"])
    assert (settings.metrics_address, settings.write_allocatable) == ("0.0.0.0", True)
