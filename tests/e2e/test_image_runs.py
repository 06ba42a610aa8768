"""What deploy/image makes, run as the chart runs it: the container's user, a read-only root, nothing else installed.

There is no container: a mount namespace and chroot stand for it, and this machine's interpreter for the base image.
Needs root, and the package index.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from crds.v1alpha1 import names
from kube import apply
from sandbox.ports import HeldPort
from tests.e2e.chart_release import Program, Release, bare_cluster, short_folder
from tests.e2e.fleet import daemon_pod, node
from tests.e2e.real_cluster import AGENT, CONTROLLER, LEASES, NODES, PLUGIN, RealCluster, call
from tests.e2e.rig.controlplane import Binaries
from tests.waiting import eventually

HERE = Path(__file__).parent
IMAGE = HERE.parents[1] / "deploy" / "image"
NODE = "gpu-node-1"
SECONDS = 60.0


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("image") / "gpuplan"
    uv = {"UV": str(Path(sys.executable).with_name("uv")), "PLATFORM": f"--python {sys.executable}"}
    for script in ("dependencies.sh", "product.sh"):
        subprocess.run([IMAGE / script, found], env={**os.environ, **uv, "PYTHON": sys.executable}, check=True)
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        found.chmod(0o755)
        for name in ("state", "kubelet/device-plugins", "kubelet/pod-resources", "mps", "cdi"):
            (found / name).mkdir(parents=True)
        yield found


@pytest.fixture
def release(programs: Binaries, helm: Path, tmp_path: Path) -> Iterator[Release]:
    with bare_cluster(programs, tmp_path) as found:
        yield Release(found, helm, tmp_path)


def test_all_programs_run_from_the_image_on_a_read_only_root(
    release: Release, prefix: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    cluster = release.cluster
    with closing(HeldPort()) as controller_port, closing(HeldPort()) as agent_port:
        directories = {f"{name}Dir": str(folder / name) for name in ("state", "kubelet", "mps", "cdi")}
        ports = {"controller": {"metricsPort": controller_port.number}, "agent": {"metricsPort": agent_port.number}}
        release.install({"nodes": directories, **ports})
        apply.create(cluster.admin, NODES, node(NODE))
        pod = eventually(lambda: daemon_pod(cluster, AGENT, NODE), "the scheduler binds the agent's pod", SECONDS)

        controller = Program(release, "deployments", CONTROLLER, folder)
        agent = Program(release, "daemonsets", AGENT, folder, node=NODE)
        plugin = Program(release, "daemonsets", PLUGIN, folder)
        tokens = {
            CONTROLLER: cluster.token(CONTROLLER),
            AGENT: cluster.token(AGENT, pod=pod, requester=cluster.kubelet(NODE)),
        }
        for program in (controller, agent, plugin):
            request.addfinalizer(program.kill)
            program.start(*credentials(program, cluster, tokens), before=jail(program, prefix, folder))

        eventually(partial(controller.answers, "readinessProbe"), "the controller is ready", SECONDS)
        eventually(partial(agent.answers, "livenessProbe"), "the agent lives", SECONDS)
        lease = f"{LEASES}/{names.agent_lease(NODE)}"
        eventually(lambda: call(cluster.admin, "GET", lease).allowed, "the agent sends heartbeats", SECONDS)
        eventually((folder / "state" / "plugin" / "plugin.lock").exists, "the plugin runs", SECONDS)

        assert [user_of(program) for program in (controller, agent, plugin)] == [65532, 0, 0]
        for program in (controller, agent, plugin):
            code, seconds = program.end()
            said = program.log.read_text()
            assert code == 0, f"{program.log.stem} after {seconds:.1f} s: {said[-2000:]}"
            assert "Read-only file system" not in said
            assert "Traceback" not in said


def credentials(program: Program, cluster: RealCluster, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """What a token in the pod is to a program in it: it lies with the settings. The device plugin has none."""
    if program.name not in tokens:
        return ()
    path = program.folder / "kubeconfig"
    path.write_text(cluster.plane.kubeconfig_with(tokens[program.name]))
    return ("--kubeconfig", str(path))


def jail(program: Program, prefix: Path, folder: Path) -> list[str]:
    """The command that runs the program as the kubelet would run its container, mounts included."""
    root = folder / f"root-{program.name}"
    root.mkdir()
    security = {**program.pod.get("securityContext", {}), **program.container["securityContext"]}
    user = security["runAsUser"]
    assert security["readOnlyRootFilesystem"] is True
    host = {volume["name"]: volume["hostPath"]["path"] for volume in program.pod["volumes"] if "hostPath" in volume}
    mounts = [mount for mount in program.container["volumeMounts"] if mount["name"] in host]
    places = {True: [f"{program.folder}:{program.folder}"], False: list[str]()}
    for mount in mounts:
        places[bool(mount.get("readOnly"))].append(f"{host[mount['name']]}:{mount['mountPath']}")
    script = [str(HERE / "image_jail.sh"), str(root), str(prefix), sys.base_prefix, f"{user}:{user}"]
    space = ["unshare", "--mount", "--propagation", "private"]
    return [*space, *script, ",".join(places[False]), ",".join(places[True]), program.words[0]]


def user_of(program: Program) -> int:
    """Of the running process."""
    assert program.process is not None
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("Uid:")]
    return int(line.split()[1])
