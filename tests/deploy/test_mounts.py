"""Every path of the node that a shipped program uses lies below one of its mounts."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodeagent
from deploy.generate.manifests import CHART
from kube.kubelet_api.paths import KubeletPaths
from nodeagent.device_plugin.__main__ import parse_arguments
from nodeagent.settings import Settings
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

PROGRAM = Path(inspect.getfile(nodeagent)).parent
PLUGIN = PROGRAM / "device_plugin"
ALL = list(manifests_of(MANIFESTS))
Json = dict[str, Any]


def container(name: str) -> Json:
    sets = {body["metadata"]["name"]: body for body in ALL if body["kind"] == "DaemonSet"}
    (found,) = sets[name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def kubelet_paths_used_in(modules: Iterator[Path], root: Path) -> set[Path]:
    """What the code reads from a variable or field that is named `paths`."""
    known = {name: path for name, path in vars(KubeletPaths(root)).items() if name != "root"}
    found = set()
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in known and ast.unparse(node.value).endswith("paths"):
                found.add(known[node.attr])
    return found


def agent_paths() -> set[Path]:
    (config,) = (b for b in ALL if b["kind"] == "ConfigMap" and b["metadata"]["name"] == "gpuplan-agent")
    settings = Settings.model_validate(yaml.safe_load(config["data"]["config.yaml"]))
    modules = (module for module in PROGRAM.rglob("*.py") if PLUGIN not in module.parents)
    read = {*settings.cdi_spec_dirs, settings.proc_dir, settings.containerd_config_dir}
    return {settings.state_dir, *read, *kubelet_paths_used_in(modules, settings.kubelet_dir)}


def plugin_paths() -> set[Path]:
    arguments = parse_arguments(container("gpuplan-device-plugin")["args"][2:])
    used = kubelet_paths_used_in(PLUGIN.rglob("*.py"), arguments.kubelet_dir)
    return {arguments.state_dir, arguments.mps_root, arguments.cdi_dir, *used}


@pytest.mark.parametrize(
    ("name", "paths", "least"),
    [
        (
            "gpuplan-agent",
            agent_paths(),
            {"device-plugins", "kubelet_internal_checkpoint", "pod-resources/kubelet.sock"},
        ),
        ("gpuplan-device-plugin", plugin_paths(), {"device-plugins/kubelet.sock", "pod-resources/kubelet.sock"}),
    ],
)
def test_every_path_that_a_program_uses_is_mounted(name: str, paths: set[Path], least: set[str]) -> None:
    assert all(any(str(path).endswith(end) for path in paths) for end in least), "the search of the code finds nothing"
    mounts = [Path(mount["mountPath"]) for mount in container(name)["volumeMounts"]]
    assert [str(path) for path in sorted(paths) if not any(path.is_relative_to(mount) for mount in mounts)] == []


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("gpuplan-agent", {"/var/lib/gpuplan", "/var/run/cdi", "/tmp"}),
        ("gpuplan-device-plugin", {"/var/lib/gpuplan", "/var/lib/kubelet/device-plugins", "/run/gpuplan/mps", "/tmp"}),
    ],
)
def test_only_what_a_program_writes_is_mounted_writable(name: str, written: set[str]) -> None:
    mounts = container(name)["volumeMounts"]
    assert {mount["mountPath"] for mount in mounts if not mount.get("readOnly")} == written
    assert container(name)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", ["gpuplan-agent", "gpuplan-device-plugin"])
def test_host_paths_are_mounted_where_they_lie(name: str) -> None:
    (body,) = (b for b in ALL if b["kind"] == "DaemonSet" and b["metadata"]["name"] == name)
    volumes = {volume["name"]: volume for volume in body["spec"]["template"]["spec"]["volumes"]}
    for mount in container(name)["volumeMounts"]:
        host = volumes[mount["name"]].get("hostPath")
        # A container has an /etc and a /proc of its own.
        elsewhere = {"/etc": "/host/etc", "/proc": "/host/proc"}
        assert host is None or elsewhere.get(host["path"], host["path"]) == mount["mountPath"]


def test_agent_and_device_plugin_use_one_specification() -> None:
    (config,) = (b for b in ALL if b["kind"] == "ConfigMap" and b["metadata"]["name"] == "gpuplan-agent")
    settings = Settings.model_validate(yaml.safe_load(config["data"]["config.yaml"]))
    assert parse_arguments(container("gpuplan-device-plugin")["args"][2:]).cdi_dir == settings.cdi_spec_dirs[-1]


def test_the_page_names_every_path_of_the_node_with_its_reason() -> None:
    page = (MANIFESTS.parents[1] / "docs/security.md").read_text()
    (table,) = re.findall(r"^## What the pods get of the node\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    pods = [body["spec"]["template"]["spec"] for body in ALL if body["kind"] == "DaemonSet"]
    paths = {volume["hostPath"]["path"] for pod in pods for volume in pod["volumes"] if "hostPath" in volume}
    assert {path for path in paths if f"`{path}`" not in table} == set()


@pytest.mark.parametrize("template", ["41-agent.yaml", "42-device-plugin.yaml"])
def test_every_privilege_has_its_reason_beside_it(template: str) -> None:
    lines = (CHART / "templates" / template).read_text().splitlines()
    assert len(lines) > 50
    bare = []
    for number, line in enumerate(lines):
        if re.search(r"hostPID|hostIPC|hostNetwork|privileged:|mountPath:", line) and "name: config" not in line:
            explained = "# " in line or lines[number - 1].strip().startswith("#")
            bare += [] if explained else [line.strip()]
    assert bare == []
