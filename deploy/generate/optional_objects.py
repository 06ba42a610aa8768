"""The values of objects that a cluster may do without: policies about pods, network policies, monitoring.

Each is a type with defaults and meanings, as in `values`. Nothing here reads a file.
"""

from typing import Annotated

from pydantic import Field

from deploy.generate.parts import Texts
from kube.settings import Section


class Policies(Section):
    """Admission policies beyond those that are always installed, which limit gpuplan's own accounts, and refuse pods
    with more than 1,000 of a GPU resource in one container."""

    one_gpu_resource_per_container: bool = True
    """Refuse pods with an MPS slice and another GPU resource in one container, which would see the slice only; with
    `agent.settings.deviceListStrategy: envvar` with any two."""
    ack_memory_as_slices: bool = False
    """Give pods that request `aliyun.com/gpu-mem: N` a sized slice of N GiB, rounded up to GB, instead of units: for
    ACK's nodes with several GPUs, of which kube-scheduler sees the sum of units only. Needs a cluster that serves
    MutatingAdmissionPolicy (Kubernetes 1.36; 1.34 with the API enabled)."""
    mps_requests: bool = True
    """Refuse pods with a container that requests several MPS slices, or that requests one and sets
    `NVIDIA_VISIBLE_DEVICES` or `CUDA_MPS_*`, which hold its limits. With false the controller's Events say so. A
    ConfigMap or Secret of its `envFrom` can set them all the same: admission does not see what is in it."""
    aggregate_roles: bool = True
    """Add the rules of the ClusterRoles gpuplan-viewer and gpuplan-author to Kubernetes' own roles view, edit and
    admin. Plans have no namespace: who has such a role in one namespace alone reads and writes none."""


class NetworkPolicy(Section):
    """Who may reach gpuplan's pods, and what these may reach."""

    enabled: bool = False
    """Render them for controller and agents: inbound the metrics ports alone, outbound the API server and DNS. Device
    plugin and MPS daemons have the host's network, and use none."""
    api_server_ports: Annotated[list[Annotated[int, Field(ge=1, le=65_535)]], Field(min_length=1)] = [443, 6443]
    """Ports of the API server, as the pods reach it and as it listens: a few distributions use others."""
    metrics_from: Texts = {}
    """Labels of namespaces that may read the metrics, e.g. `kubernetes.io/metadata.name: monitoring`. Empty: gpuplan's
    own namespace alone."""


class Monitor(Section):
    """Objects of the Prometheus operator."""

    enabled: bool = False
    """Render them; its kinds must be installed."""
    labels: Texts = {}
    """By which a Prometheus selects them, e.g. `release: kube-prometheus-stack`."""


class ServiceMonitor(Monitor):
    """How metrics are read."""

    interval: Annotated[str, Field(pattern="^([0-9]+(ms|s|m|h))?$")] = ""
    """Time between two reads; empty: that of the Prometheus."""


class Rules(Monitor):
    """The chart's alerts."""

    runbook_base_url: Annotated[str, Field(pattern="^(https?://[^ ]+)?$")] = ""
    """Where you read docs/runbooks, e.g. `https://git.example.com/gpuplan/docs/runbooks`: the `runbook_url` of
    each alert begins with it. Empty: the page's path in the repository."""
    held_plan_for: Annotated[str, Field(pattern="^[1-9][0-9]*(m|h|d)$")] = "4h"
    """How long a plan may be paused or Manual while pods wait, before the alert GpuplanPlanHeld fires."""


class Dashboards(Section):
    """Grafana dashboards as ConfigMaps."""

    enabled: bool = False
    """Render them."""
    labels: Texts = {"grafana_dashboard": "1"}
    """By which Grafana's sidecar finds them."""
    annotations: Texts = {}
    """As its folder, where the sidecar reads that: `grafana_folder: GPUs`."""


class Monitoring(Section):
    """Prometheus and Grafana."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    """Two Services and ServiceMonitors: controller and agents."""
    prometheus_rule: Rules = Rules()
    """The chart's alerts, as a PrometheusRule."""
    dashboards: Dashboards = Dashboards()
    """The chart's dashboards."""
