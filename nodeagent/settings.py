"""The agent's settings, every field documented here; `kube.settings` reads them.

Takes the path of one YAML file with camelCase keys, returns frozen `Settings`, or raises one `SettingsError` with a
line per problem. Reads no environment and starts nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from crds.v1alpha1.names import NAMESPACE
from kube.settings import Section
from partitioning.nvidia_plugin import MPS_ROOT

Seconds = Annotated[float, Field(ge=0, le=86_400)]
Interval = Annotated[float, Field(gt=0, le=86_400)]


class Settings(Section):
    """Everything that a person can set."""

    state_dir: Path = Path("/var/lib/gpuplan")
    """Journal, memory and the files shared with the device plugin; on the node's disk, not in the pod."""
    kubelet_dir: Path = Path("/var/lib/kubelet")
    """The kubelet's root directory, with pod-resources and device-plugins below it."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = NAMESPACE
    """Where the Lease of this agent's heartbeat lives."""
    heartbeat_seconds: Interval = 10.0
    """Time between two heartbeats; the controller counts an agent as silent after 60 s."""
    resync_seconds: Interval = 10.0
    """Longest time between two passes when nothing happens: finds what was changed by hand."""
    kubelet_start_seconds: Seconds = 60.0
    """How long after a kubelet start its List of pods is not believed: it is empty at first. 0 only in a sandbox."""
    release_slack_seconds: Seconds = 30.0
    """Where the agent does not see the processes that pods leave, a pod that vanished without having ended keeps its
    devices for its grace period and this long; else it keeps them while a process of it is left."""
    gpu_resources: tuple[Annotated[str, Field(min_length=1, max_length=317)], ...] = ()
    """Further extended resources by which pods hold this node's GPUs through another device plugin. Known are
    nvidia.com/gpu*, nvidia.com/mig-*, mig.das.com/* and aliyun.com/gpu-mem. While a pod has a device id of one of these
    that names no UUID, any partition of its node may be in use."""
    loaded_deadline_seconds: Interval = 60.0
    """After this long without the device plugin loading its config the plan reports it."""
    allocatable_deadline_seconds: Interval = 30.0
    """After this long without kubelet or Node showing what is advertised the plan reports it; three status ticks."""
    status_interval_seconds: Seconds = 1.0
    """Least time between two status writes; three times as long where only who holds what has changed."""
    driver_timeout_seconds: Interval = 20.0
    """A GPU whose driver call has no answer for this long is reported and left alone until the call returns and one
    more minute is over; the other GPUs are not affected."""
    device_list_strategy: Literal["cdi-cri", "envvar"] = "cdi-cri"
    """How containers get their devices, in the words of NVIDIA's device plugin: cdi-cri, by CDI names, which containerd
    2 and CRI-O resolve; or envvar, by NVIDIA_VISIBLE_DEVICES, where NVIDIA's runtime is the node's default one."""
    cdi_spec_dirs: Annotated[tuple[Path, ...], Field(min_length=1)] = (Path("/etc/cdi"), Path("/var/run/cdi"))
    """Where the container runtime looks for CDI specifications, as in its own configuration; ours is written into the
    last one, which is also the device plugin's --cdi-dir."""
    mps_read_only_pipes: bool = True
    """Mount the pipe directory of an MPS daemon read-only into its clients; with envvar the device plugin's own option
    counts."""
    mps_exclusive_process: bool = True
    """Keep a GPU in compute mode EXCLUSIVE_PROCESS while it is shared by MPS, so that the driver refuses a program that
    does not use MPS; its mode before is restored."""
    mps_replicas_before_volta: bool = False
    """Let plans share GPUs older than Volta into equal replicas. There each pod with a replica can read and write the
    GPU memory of the others, and no limit holds: only where all of them trust each other."""
    proc_dir: Path = Path("/proc")
    """The host's procfs, for the driver's device numbers and the processes of NVIDIA's device plugin."""
    containerd_config: Path | None = None
    """containerd's configuration on the node, read below the root of process 1, to see whether it uses CDI. Absent: the
    file of k3s, RKE2 or MicroK8s where there is one, else /etc/containerd/config.toml."""
    refresh_host_devices: bool = True
    """After a change of MIG instances add their device nodes to the host, and to NVIDIA's specification for the GPU
    Operator's own pods: mig-manager, which did that, does not run on a node of gpuplan."""
    write_allocatable: bool = True
    """Write the Node's capacity and allocatable of our resources as soon as the kubelet lists the devices, instead of
    waiting up to ten seconds for its status tick. Needs the right to patch nodes/status, and is done only where the
    API server shows by a dry run that the policy gpuplan-agent-node limits it; see the condition AllocatableWritten."""
    nvidia_backend: bool = False
    """Plans may have devicePlugin.backend nvidia: the agent sees the kubelet's directory pods, and nvidiaMpsRoot."""
    nvidia_mps_root: Path = Path(MPS_ROOT)
    """Where the MPS control daemons of NVIDIA's device plugin keep their files."""
    metrics_address: str = "127.0.0.1"
    """Address on which /metrics, /healthz and /readyz are served; 0.0.0.0 inside a pod."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9841
    """Port of the same; 0 takes any free one and logs it."""
    pod_metrics: bool = False
    """Export which pod holds which partition, by labels that DCGM exporter's series have as well: one more series for
    each partition in use, and a new one for each pod."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
    log_format: Literal["text", "json"] = "text"
    """How lines are written: text, as key=value pairs, or json, an object a line."""
