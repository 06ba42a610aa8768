"""A release of the chart in a real control plane: installed by the real helm, its programs run as its objects define.

Takes a control plane without gpuplan, and helm. `Release` installs, changes and removes; `Program` runs the command of
an installed container with its arguments, its mounted settings and a token of its service account. There is no
container: paths of the node are values of the chart, and only /etc/gpuplan is replaced.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from deploy.generate.manifests import CHART, IMAGE, NAMESPACE, split
from kube import apply
from sandbox.mps import search_path
from tests.e2e.real_cluster import PLANS, RealCluster, call, plan, running_cluster
from tests.e2e.rig.controlplane import Binaries
from tests.waiting import eventually

Json = dict[str, Any]
NAME = "gpuplan"
WORKLOADS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
KINDS = (
    "deployments,daemonsets,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,"
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
)
PROGRAMS = Path(sys.executable).parent


class Release:
    """The chart in the namespace `gpuplan-system` of this cluster."""

    def __init__(self, cluster: RealCluster, helm: Path, folder: Path) -> None:
        self.cluster = cluster
        self._helm, self._folder = helm, folder
        self._config = folder / "helm.kubeconfig"
        self._config.write_text(cluster.plane.kubeconfig())

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE) -> str:
        """Run helm as an administrator; raises with what it printed where it fails. Values name an image if these do
        not."""
        given = self._folder / "values.yaml"
        given.write_text(yaml.safe_dump({**yaml.safe_load(IMAGE), **(values or {})}))
        command = [str(self._helm), *arguments, "--namespace", namespace, "--kubeconfig", str(self._config)]
        if values is not None:
            command += ["--values", str(given)]
        environ = {**os.environ, "HOME": str(self._folder), "HELM_CACHE_HOME": str(self._folder / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ, check=False)
        if done.returncode != 0:
            raise AssertionError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def install(self, values: Mapping[str, Any]) -> None:
        """As README.md has it, until the CRD is served and the policies are in force."""
        self.helm("install", NAME, str(CHART), values=values)
        self.cluster.wait_established()
        probe = plan("policy-probe", planned={"gpus": []})
        eventually(
            lambda: call(self.cluster.admin, "POST", PLANS, probe, dryRun="All").status == 403, "policies are in force"
        )

    def templates(self) -> dict[str, str]:
        """What is installed, by the chart's templates."""
        return split(self.helm("get", "manifest", NAME))

    def remaining(self) -> list[str]:
        """Objects of gpuplan that are still there."""
        names = self.cluster.kubectl(
            *("get", KINDS, "-A", "-l", "app.kubernetes.io/part-of=gpuplan", "-o", "name"), check=True
        )
        return sorted(names.split())

    def workload(self, kind: str, name: str) -> Json:
        return apply.get(self.cluster.admin, f"{WORKLOADS}/{kind}/{name}")


class Program:
    """The container of an installed workload as a process of this machine."""

    def __init__(self, release: Release, kind: str, name: str, folder: Path, *, node: str = "") -> None:
        self._workload = release.workload(kind, name)
        self.pod: Json = self._workload["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.log = folder / f"{name}.log"
        self.name, self.folder = name, folder / name
        self._mount(release)
        self._node = node
        self.process: subprocess.Popen[bytes] | None = None

    def _mount(self, release: Release) -> None:
        """Its ConfigMap as the kubelet would mount it."""
        self.folder.mkdir()
        for volume in self.pod["volumes"]:
            if "configMap" in volume:
                path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{volume['configMap']['name']}"
                for file, text in apply.get(release.cluster.admin, path)["data"].items():
                    (self.folder / file).write_text(text)

    @property
    def words(self) -> list[str]:
        """Program and arguments as the kubelet would pass them."""
        places = {"/etc/gpuplan": str(self.folder), "$(NODE_NAME)": self._node}
        words = list(self.container["args"])
        for old, new in places.items():
            words = [word.replace(old, new) for word in words]
        return words

    def start(self, *extra: str, before: Sequence[str] = ()) -> None:
        """`before`: a command to which the program's arguments are added, instead of its own script."""
        program, *arguments = self.words
        command = [*before, *arguments, *extra] if before else [str(PROGRAMS / program), *arguments, *extra]
        environ = {**os.environ, "PATH": search_path(os.environ["PATH"])}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)

    def answers(self, probe: str) -> bool:
        """Whether it passes this probe of its container."""
        asked = self.container[probe]["httpGet"]
        (port,) = [port["containerPort"] for port in self.container["ports"] if port["name"] == asked["port"]]
        try:
            with urlopen(f"http://127.0.0.1:{port}{asked['path']}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def end(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and the seconds that it took. Killed after the grace period of its pod."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(float(self.pod["terminationGracePeriodSeconds"]))
        except subprocess.TimeoutExpired:
            self.kill()
            code = -signal.SIGKILL
        return code, time.monotonic() - began

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def bare_cluster(programs: Binaries, folder: Path) -> Iterator[RealCluster]:
    """A control plane of its own, with the namespace that helm needs, as README.md makes it."""
    with running_cluster(programs, folder) as found:
        found.kubectl("create", "namespace", NAMESPACE, check=True)
        found.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged", check=True)
        yield found


@contextmanager
def short_folder() -> Iterator[Path]:
    """Below /tmp, since the sockets of a kubelet and of MPS daemons have short names."""
    folder = Path(tempfile.mkdtemp(prefix="gpc", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
