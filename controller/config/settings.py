"""The controller's settings, every field documented here; `kube.settings` reads them.

Takes the path of one YAML file with camelCase keys and returns frozen `Settings`, or raises one `SettingsError` with a
line per problem. Reads no environment and starts nothing.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from controller.model.views import DRAINED_PERCENT, DRAINS, IMPROVE_STEPS
from crds.v1alpha1.names import NAMESPACE
from crds.v1alpha1.spec import MAX_REPLICAS
from kube import settings
from kube.settings import Section

LOOPBACK = "127.0.0.1"
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class LeaderElection(Section):
    """Which of several controllers writes. Ages are measured on the monotonic clock of each process."""

    enabled: bool = True
    """false only where exactly one controller can run, as in the sandbox."""
    lease_duration_seconds: Seconds = 15.0
    """How long others wait after the leader's last renewal before they take over."""
    renew_deadline_seconds: Seconds = 10.0
    """How long the leader goes on trying to renew before it stops by itself; shorter than the lease."""
    retry_period_seconds: Seconds = 2.0
    """Time between two attempts to take or to renew the Lease."""

    @model_validator(mode="after")
    def _ordered(self) -> "LeaderElection":
        if not self.lease_duration_seconds > self.renew_deadline_seconds > self.retry_period_seconds:
            raise ValueError(
                "leaseDurationSeconds must be greater than renewDeadlineSeconds, and that greater than "
                f"retryPeriodSeconds; they are {self.lease_duration_seconds:g}, {self.renew_deadline_seconds:g} and "
                f"{self.retry_period_seconds:g}: 15, 10 and 2 are the usual values"
            )
        return self


class ConfigMapKey(Section):
    """One key of a ConfigMap."""

    name: Annotated[str, Field(max_length=253)] = ""
    """Empty: none."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "kube-system"
    """Where it lies."""
    key: Annotated[str, Field(max_length=253)] = ""
    """Which of its keys; may be left out where it has but one."""


class NvidiaConfigMap(Section):
    """The ConfigMap that NVIDIA's device plugin mounts."""

    name: Annotated[str, Field(max_length=253)] = ""
    """Empty: no plan can have devicePlugin.backend nvidia. Its namespace must have it already."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "gpu-operator"
    """Where that plugin runs."""


class Scheduler(Section):
    """The schedulers whose filters are simulated."""

    config: ConfigMapKey = ConfigMapKey()
    """The KubeSchedulerConfiguration in force, read when the controller starts; schedulerConfigFile goes before it."""


class Settings(Section):
    """Everything that a person can set. Names of the batch window are those of nos, which waits 10 and 60 s."""

    batch_window_timeout_seconds: Seconds = 5.0
    """Longest time between the first pending pod of a batch and its planning, however many more arrive."""
    batch_window_idle_seconds: Seconds = 1.0
    """A batch is planned when no further pod arrived for this long."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] = NAMESPACE
    """Where gpuplan's Leases live: the controller's own and the agents' heartbeats."""
    leader_election: LeaderElection = LeaderElection()
    """Which of several controllers writes."""
    metrics_address: str = LOOPBACK
    """Address on which /metrics, /healthz, /readyz and /decisions are served; 0.0.0.0 inside a pod. On another address
    than 127.0.0.1, /decisions is for those who may list pods in all namespaces."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 9840
    """Port of the same; 0 takes any free one and logs it."""
    nominate_pods: bool = True
    """Write status.nominatedNodeName of planned pods, so that no other takes the partition; false: do not."""
    scheduler_names: Annotated[tuple[str, ...], Field(min_length=1)] = ("default-scheduler",)
    """Pods of these schedulers are planned for; any other's are left alone. Not given: those of the configuration."""
    scheduler_config_file: Annotated[str, Field(max_length=4096)] = ""
    """The KubeSchedulerConfiguration in force. Where there is no such file, pods are filtered as by default."""
    scheduler: Scheduler = Scheduler()
    """The same from a ConfigMap. Where there is no such ConfigMap, pods are filtered as by default."""
    improve_steps: Annotated[int, Field(ge=0, le=10_000_000)] = IMPROVE_STEPS
    """How many exchanges of planned pods the planner may try after its first placement."""
    known_mig_geometries_file: Annotated[str, Field(max_length=4096)] = ""
    """A file in the format of nos' knownMigGeometries: models that it names are cut in these ways only. Empty: none."""
    mps_replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    """MPS shares each GPU of a node enabled for it into so many equal replicas (nvidia.com/gpu.shared), before any pod
    comes. A node's label gpuplan.dev/mps-replicas goes before this. 0: pending pods decide, slice by slice."""
    mps_user_id: Annotated[int | None, Field(alias="mpsUserID", ge=0)] = None
    """The only user that MPS servers serve (mps.userID of the chart). A pod with an MPS slice that does not run as this
    user has an Event."""
    ack_memory: Literal["units", "slices"] = "units"
    """How nodes with ACK's label alone are shared: in units of aliyun.com/gpu-mem, or in sized slices as pods come."""
    ageing_seconds: Seconds = 600.0
    """A pod that waits longer than this counts as the next priority level."""
    drain_seconds: Seconds = 3600.0
    """A pod that waits longer than this has partitions drained that pods which came later hold: no new pod gets them,
    their holders run on, and it gets the place when the last of these has ended."""
    drains: Annotated[int, Field(ge=0, le=1000)] = DRAINS
    """For how many pods at a time; 0: nothing is drained."""
    drained_percent: Annotated[int, Field(ge=1, le=100)] = DRAINED_PERCENT
    """None more begins on more than this share of the GPUs that may be cut; one always may."""
    bind_seconds: Seconds = 60.0
    """A pod that its scheduler passes over for this long, twice, although its partitions are there, is left alone."""
    agent_silent_seconds: Seconds = 60.0
    """An agent whose Lease was not renewed for this long counts as silent: its node is not planned any more."""
    taint_removal_seconds: Seconds = 180.0
    """After this long the silent agent's taint gpuplan.dev/changing is taken off its node."""
    under_way_seconds: Seconds = 300.0
    """How long partitions that an agent is still making count as supply."""
    plan_return_seconds: Seconds = 60.0
    """A deleted plan of a node that is still enabled returns, empty, after this long."""
    orphan_plan_seconds: Seconds = 3600.0
    """A plan in which people wrote nothing is deleted when its Node is gone for this long, and the Lease of its
    agent, when that is silent for this long."""
    operator_labels: Literal["report", "manage"] = "report"
    """The GPU Operator's labels that switch its device plugin and mig-manager off: manage, the controller sets them on
    nodes that you enable, restores what was there, and takes DCGM off while it holds a partition open; report, the plan
    says which are missing, with the command, and what was set before is put back."""
    nvidia_config: NvidiaConfigMap = NvidiaConfigMap()
    """Where the configs of plans with devicePlugin.backend nvidia are written: keys gpuplan-*, no others."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
    log_format: Literal["text", "json"] = "text"
    """How lines are written: text, as key=value pairs, or json, an object a line."""

    @model_validator(mode="after")
    def _ordered(self) -> "Settings":
        if self.mps_replicas == 1:
            raise ValueError("mpsReplicas is 1, and sharing begins at 2: write 2 or more, or 0 for none")
        if self.batch_window_idle_seconds > self.batch_window_timeout_seconds:
            raise ValueError(
                f"batchWindowIdleSeconds ({self.batch_window_idle_seconds:g}) must not be greater than "
                f"batchWindowTimeoutSeconds ({self.batch_window_timeout_seconds:g}): raise the one or lower the other"
            )
        if self.taint_removal_seconds < self.agent_silent_seconds:
            raise ValueError(
                f"taintRemovalSeconds ({self.taint_removal_seconds:g}) must not be less than "
                f"agentSilentSeconds ({self.agent_silent_seconds:g}): an agent must be silent before its taint goes"
            )
        return self


def load_settings(path: Path) -> Settings:
    """Read the file; raises SettingsError with the file's name in front of every sentence."""
    return settings.load(Settings, path)


def read_settings(content: object) -> Settings:
    """Check decoded YAML; raises SettingsError, one line per problem."""
    return settings.read(Settings, content)
