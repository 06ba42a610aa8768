"""One node that runs real containers: containerd, runc, a network of its own and a kubelet with control groups.

Takes programs, images and a control plane that listens in the same namespaces, and returns a Ready node. Works only
below `enter.sh`, where mounts, network and process ids are apart from the machine's and end with the tests.
"""

import json
import os
import signal
from pathlib import Path

import yaml
from kubernetes.client import ApiClient

from tests.e2e.real_cluster import NODES, call
from tests.e2e.rig.containers.programs import Programs
from tests.e2e.rig.controlplane import RealControlPlane
from tests.e2e.rig.controlplane.leashed import run
from tests.e2e.rig.controlplane.part import Part

NODE = "gpuplan-node"
NODE_ADDRESS = "10.99.0.1"
SERVICE_PORT = 443
PAUSE = "registry.test/pause:1"
RUN = Path("/run/containerd")
SOCKET = RUN / "containerd.sock"
KUBELET = Path("/var/lib/kubelet")
START_SECONDS = 120.0
IMPORT_SECONDS = 300.0


def for_containers(directory: Path, *api_server: str) -> dict[str, tuple[str, ...]]:
    """What the servers need beyond the rig's flags, and the API server's further ones; `directory` is the plane's."""
    admin = directory / "pki" / "gpuplan-sandbox-admin"
    return {
        "kube-apiserver": (
            "--bind-address=0.0.0.0",
            f"--advertise-address={NODE_ADDRESS}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={admin}.crt",
            f"--kubelet-client-key={admin}.key",
            *api_server,
        ),
        "kube-controller-manager": ("--controllers=*,-nodeipam",),
    }


class ContainerNode:
    """Start with `start`, end with `close`; pods and their processes end with the namespaces."""

    def __init__(self, folder: Path, programs: Programs, kubelet: Path, plane: RealControlPlane) -> None:
        self.folder = folder
        self._programs = programs
        for name in ("cni", "images"):
            (folder / name).mkdir(parents=True)
        (folder / "containerd.toml").write_text(self._containerd_settings())
        (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(NETWORK))
        (folder / "kubelet.yaml").write_text(self._kubelet_settings(plane))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(plane.kubeconfig_of(f"system:node:{NODE}", ("system:nodes",)))
        path = f"PATH={programs.containerd}:{programs.runc.parent}:{os.environ['PATH']}"
        self.containerd = Part(
            "containerd",
            ["/usr/bin/env", path, str(programs.containerd / "containerd"), "-c", str(folder / "containerd.toml")],
            log=folder / "containerd.log",
            ready=self._containerd_answers,
        )
        self.kubelet = Part(
            "kubelet",
            [
                str(kubelet),
                f"--config={folder / 'kubelet.yaml'}",
                f"--kubeconfig={kubeconfig}",
                f"--cert-dir={KUBELET / 'pki'}",
                f"--hostname-override={NODE}",
                f"--node-ip={NODE_ADDRESS}",
                "--v=2",
            ],
            log=folder / "kubelet.log",
            ready=(KUBELET / "device-plugins" / "kubelet.sock").exists,
        )

    def start(self) -> None:
        """Return when both serve; raises ControlPlaneFailed."""
        for part in (self.containerd, self.kubelet):
            part.start()
            part.wait(START_SECONDS)

    def load(self, archive: Path) -> None:
        """Make an image known to the kubelet."""
        self._ctr("images", "import", "--local", str(archive))

    def trust(self, address: str) -> None:
        """Pull images of a registry on loopback over HTTP."""
        hosts = self.folder / "registries" / address
        hosts.mkdir(parents=True)
        (hosts / "hosts.toml").write_text(f'server = "http://{address}"\n')

    def close(self) -> None:
        """End kubelet and containerd; shims and containers end with the namespaces."""
        self.kubelet.stop()
        self.containerd.signal(signal.SIGTERM)
        self.containerd.stop()

    def _ctr(self, *arguments: str) -> None:
        done = run(
            [str(self._programs.containerd / "ctr"), "-n", "k8s.io", *arguments],
            seconds=IMPORT_SECONDS,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr}")

    def _containerd_answers(self) -> bool:
        done = run([str(self._programs.containerd / "ctr"), "version"], seconds=START_SECONDS, capture_output=True)
        return done.returncode == 0

    def _containerd_settings(self) -> str:
        return f"""\
version = 3
root = "{self.folder / "containerd"}"
state = "{RUN}"
disabled_plugins = ["io.containerd.nri.v1.nri"]
imports = []
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{self.folder / "registries"}"
[plugins."io.containerd.cri.v1.runtime"]
  # Root of a virtual machine may lack CAP_SYS_RESOURCE, which a lower score needs.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{self._programs.runc}"
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{self._programs.cni}"]
    conf_dir = "{self.folder / "cni"}"
"""

    def _kubelet_settings(self, plane: RealControlPlane) -> str:
        return yaml.safe_dump(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": "0.0.0.0",
                "nodeStatusUpdateFrequency": "1s",
                "failCgroupV1": False,
                "failSwapOn": False,
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": os.environ["GPUPLAN_E2E_CGROUP"],
                "cgroupsPerQOS": True,
                "enforceNodeAllocatable": ["pods"],
                "containerRuntimeEndpoint": f"unix://{SOCKET}",
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(plane.directory / "pki" / "ca.crt")},
                },
                "authorization": {"mode": "Webhook"},
                "makeIPTablesUtilChains": False,
                "resolvConf": "",
                # A full disk of the machine is no business of these tests.
                "imageGCHighThresholdPercent": 100,
                "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
            },
            sort_keys=False,
        )


NETWORK = {
    "cniVersion": "0.4.0",
    "name": "gpuplan-e2e",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni-ipam",
                "ranges": [[{"subnet": "10.88.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def ready(api: ApiClient) -> bool:
    """Whether the node is Ready."""
    found = call(api, "GET", f"{NODES}/{NODE}")
    conditions = found.body.get("status", {}).get("conditions", []) if found.allowed else []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
