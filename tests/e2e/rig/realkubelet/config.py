"""How a kubelet is started for tests: its configuration file and its command line.

Takes folders, a version, a status tick; returns the file's text and the arguments. It runs pods without control groups,
images or a network, opens no port, and leaves the machine as it was: /run, /var/lib and /var/log are its own, so are
the kernel settings that a kubelet writes.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

# What a kubelet wants of the kernel. It would write them for the whole machine, so it is shown these files instead.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# The plugin directory has a fixed path, whatever --root-dir is; $1 is what lies there for this kubelet. It cleans up
# log files by relative names, too, so $3 is a working directory with nothing in it. Each step becomes the next.
NAMESPACE_SCRIPT = """\
set -e
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none /var/log
mount -t tmpfs -o mode=755 none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
for setting in $(cd "$2" && find . -type f); do
  [ ! -e "/proc/sys/$setting" ] || mount --bind "$2/$setting" "/proc/sys/$setting"
done
cd "$3"
shift 3
exec "$@"
"""
HIDDEN = (Path("/run"), Path("/var/lib"), Path("/var/log"))
FIRST_WITH_FAIL_CGROUP_V1 = 31


def write_kernel_settings(folder: Path) -> None:
    """The files that a kubelet sees instead of the machine's."""
    for name, value in KERNEL_SETTINGS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def configuration(
    *, version: str, folder: Path, runtime_socket: Path, status_tick_seconds: float, gates: Mapping[str, bool]
) -> str:
    """A KubeletConfiguration; what is not here is at its default."""
    minor = int(version.split(".")[1])
    settings: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "enableServer": False,  # logs and exec need containers; pod-resources is served all the same
        "healthzPort": 0,
        "nodeStatusUpdateFrequency": f"{status_tick_seconds}s",
        "containerRuntimeEndpoint": f"unix://{runtime_socket}",
        "imageServiceEndpoint": f"unix://{runtime_socket}",
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        # A full disk of the machine is no business of these tests.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "featureGates": dict(gates),
    }
    if minor >= FIRST_WITH_FAIL_CGROUP_V1:
        settings["failCgroupV1"] = False
    return yaml.safe_dump(settings, sort_keys=False)


def command(
    *,
    kubelet: Path,
    node_name: str,
    folder: Path,
    root: Path,
    plugin_dir: Path,
    labels: Mapping[str, str],
    taints: Sequence[str],
) -> Sequence[str]:
    """A program by its full path, and its arguments; taints as `key=value:effect`."""
    program = shutil.which("unshare") or "/usr/bin/unshare"
    places = (plugin_dir, folder / "kernel", folder / "empty")
    return (
        *(program, "-m", "sh", "-c", NAMESPACE_SCRIPT, "sh", *map(str, places)),
        str(kubelet),
        f"--config={folder / 'kubelet.yaml'}",
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--root-dir={root}",
        f"--cert-dir={folder / 'pki'}",
        f"--hostname-override={node_name}",
        f"--node-labels={','.join(f'{name}={value}' for name, value in sorted(labels.items()))}",
        f"--register-with-taints={','.join(taints)}",
        "--v=2",
    )
