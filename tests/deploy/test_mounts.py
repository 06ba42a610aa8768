"""Every path of the node that a shipped program uses lies below one of its mounts."""

import ast
import inspect
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodeagent
from crds.v1alpha1.names import LABEL_MPS_DAEMONS
from deploy.generate.manifests import CHART
from kube.kubelet_api.paths import KubeletPaths
from nodeagent.device_plugin.__main__ import parse_arguments
from nodeagent.mps.__main__ import parse_arguments as parse_mps
from nodeagent.settings import Settings
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of
from tests.waiting import SECONDS, eventually

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
    read = {*settings.cdi_spec_dirs, settings.proc_dir}
    return {settings.state_dir, *read, *kubelet_paths_used_in(modules, settings.kubelet_dir)}


def plugin_paths() -> set[Path]:
    arguments = parse_arguments(container("gpuplan-device-plugin")["args"][2:])
    used = kubelet_paths_used_in(PLUGIN.rglob("*.py"), arguments.kubelet_dir)
    # It passes on the root of the MPS daemons, and reads nothing below it.
    return {arguments.state_dir, arguments.cdi_dir, *used}


def mps_paths() -> set[Path]:
    arguments = parse_mps(container("gpuplan-mps")["args"][2:])
    return {arguments.state_dir, arguments.mps_root}


@pytest.mark.parametrize(
    ("name", "paths_of", "least"),
    [
        (
            "gpuplan-agent",
            agent_paths,
            {"device-plugins", "kubelet_internal_checkpoint", "pod-resources/kubelet.sock"},
        ),
        ("gpuplan-device-plugin", plugin_paths, {"device-plugins/kubelet.sock", "pod-resources/kubelet.sock"}),
        ("gpuplan-mps", mps_paths, {"gpuplan", "mps"}),
    ],
)
def test_every_path_that_a_program_uses_is_mounted(
    name: str, paths_of: Callable[[], set[Path]], least: set[str]
) -> None:
    paths = paths_of()
    assert all(any(str(path).endswith(end) for path in paths) for end in least), "the search of the code finds nothing"
    mounts = [Path(mount["mountPath"]) for mount in container(name)["volumeMounts"]]
    assert [str(path) for path in sorted(paths) if not any(path.is_relative_to(mount) for mount in mounts)] == []


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("gpuplan-agent", {"/var/lib/gpuplan", "/var/run/cdi", "/tmp"}),
        ("gpuplan-device-plugin", {"/var/lib/gpuplan", "/var/lib/kubelet/device-plugins", "/tmp"}),
        ("gpuplan-mps", {"/var/lib/gpuplan", "/run/gpuplan/mps", "/tmp"}),
    ],
)
def test_only_what_a_program_writes_is_mounted_writable(name: str, written: set[str]) -> None:
    mounts = container(name)["volumeMounts"]
    assert {mount["mountPath"] for mount in mounts if not mount.get("readOnly")} == written
    assert container(name)["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", ["gpuplan-agent", "gpuplan-device-plugin", "gpuplan-mps"])
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


def test_all_programs_use_the_same_mps_daemons() -> None:
    plugin = parse_arguments(container("gpuplan-device-plugin")["args"][2:])
    mps = parse_mps(container("gpuplan-mps")["args"][2:])
    assert (plugin.mps_root, plugin.state_dir) == (mps.mps_root, mps.state_dir)


def test_nothing_ends_the_mps_daemons_but_their_pod() -> None:
    """Whatever ends its container ends every CUDA process with an MPS slice on the node."""
    (body,) = (b for b in ALL if b["kind"] == "DaemonSet" and b["metadata"]["name"] == "gpuplan-mps")
    pod = body["spec"]["template"]["spec"]
    (mps,) = pod["containers"]
    assert body["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "limits" not in mps["resources"], "the servers of the clients would count in it"
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & mps.keys()
    assert mps["command"][0] == "/bin/sh", "no program of ours is the first process"
    assert pod["nodeSelector"] == {LABEL_MPS_DAEMONS: "true"}, "no label that people change"
    assert "affinity" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_the_first_process_starts_a_program_again_that_ended_and_ends_with_its_pod(tmp_path: Path) -> None:
    script = container("gpuplan-mps")["command"]
    count = tmp_path / "count"
    with subprocess.Popen([*script, "/bin/sh", "-c", f"echo >> {count}; kill -9 $$"]) as first:
        eventually(lambda: count.exists() and count.stat().st_size >= 2, "the program was started twice")
        assert first.poll() is None
        first.terminate()
        assert first.wait(SECONDS) == 0


@pytest.mark.parametrize("name", ["gpuplan-device-plugin", "gpuplan-mps"])
def test_what_uses_no_network_does_not_depend_on_the_pod_network(name: str) -> None:
    """The kubelet ends a pod whose sandbox has no address any more, and MPS clients with their daemon."""
    sets = {body["metadata"]["name"]: body for body in ALL if body["kind"] == "DaemonSet"}
    pod = sets[name]["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert not any("ports" in found for found in pod["containers"]), "else they would be those of the node"


def test_the_page_names_every_path_of_the_node_with_its_reason() -> None:
    page = (MANIFESTS.parents[1] / "docs/security.md").read_text()
    (table,) = re.findall(r"^## What the pods get of the node\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    pods = [body["spec"]["template"]["spec"] for body in ALL if body["kind"] == "DaemonSet"]
    paths = {volume["hostPath"]["path"] for pod in pods for volume in pod["volumes"] if "hostPath" in volume}
    assert {path for path in paths if f"`{path}`" not in table} == set()


@pytest.mark.parametrize("template", ["41-agent.yaml", "42-device-plugin.yaml", "43-mps-daemons.yaml"])
def test_every_privilege_has_its_reason_next_to_it(template: str) -> None:
    lines = (CHART / "templates" / template).read_text().splitlines()
    assert len(lines) > 50
    bare = []
    for number, line in enumerate(lines):
        if re.search(r"hostPID|hostIPC|hostNetwork|privileged:|mountPath:", line) and "name: config" not in line:
            explained = "# " in line or lines[number - 1].strip().startswith("#")
            bare += [] if explained else [line.strip()]
    assert bare == []
