"""The chart on a real API server: accepted, installed by helm, run with its own arguments, rights and policies.

A control plane of its own, since policies and rights are of the whole cluster. Each test leaves it without a release.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import yaml

from crds.v1alpha1 import names
from deploy.generate import manifests
from kube import apply
from sandbox.ports import HeldPort
from tests.builders import objects
from tests.e2e.chart_node import ChartNode, kubeconfig, ready, values_for
from tests.e2e.chart_release import NAME, Program, Release, bare_cluster, short_folder
from tests.e2e.real_cluster import AGENT, CONTROLLER, LEASES, PLANS, PLUGIN, RealCluster, call, plan
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.rig.controlplane.tenants import objects_of
from tests.waiting import eventually

SLICE = "nvidia.com/mig-1g.10gb"
PODS = "/api/v1/namespaces/default/pods"
SECONDS = 120.0
ALL_OPTIONS = """
image: {repository: example.com/gpuplan, digest: "sha256:%s", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
commonLabels: {team: gpus}
knownMigGeometries: [{models: [A30], allowedGeometries: [{1g.6gb: 4}]}]
scheduler: {config: {name: scheduler-config}}
controller:
  replicas: 3
  settings: {nominatePods: false}
  nodeSelector: {node-role.kubernetes.io/control-plane: ""}
  tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
  podLabels: {a: b}
  podAnnotations: {c: d}
nodes: {runtimeClassName: nvidia, selector: {nvidia.com/gpu.deploy.client: "true"}}
agent: {settings: {writeAllocatable: true}, maxUnavailable: 1}
mps: {userID: 1000}
networkPolicy: {enabled: true, metricsFrom: {kubernetes.io/metadata.name: monitoring}}
""" % ("a" * 64)


@pytest.fixture(scope="module")
def empty(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Shared by the tests of this file."""
    with bare_cluster(programs, tmp_path_factory.mktemp("bare")) as found:
        yield found


@pytest.fixture
def release(empty: RealCluster, helm: Path, tmp_path: Path) -> Iterator[Release]:
    found = Release(empty, helm, tmp_path)
    yield found
    found.helm("uninstall", NAME, "--ignore-not-found", "--wait")


@pytest.mark.parametrize("values", ["", ALL_OPTIONS], ids=["defaults", "all options"])
def test_a_server_side_dry_run_accepts_every_object(
    empty: RealCluster, helm: Path, tmp_path: Path, values: str
) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(values)
    done = manifests.template(helm, "--namespace", names.NAMESPACE, "--values", str(given))
    assert done.returncode == 0, done.stderr
    said = empty.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=done.stdout, check=True)
    assert said.count("serverside-applied") == len(list(objects_of(done.stdout)))
    assert "Warning" not in said


def test_the_controllers_pods_meet_the_restricted_level_and_the_agents_do_not(empty: RealCluster, helm: Path) -> None:
    empty.kubectl("create", "namespace", "strict", check=True)
    empty.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted", check=True)
    empty.kubectl("create", "serviceaccount", CONTROLLER, "-n", "strict", check=True)
    empty.kubectl("create", "serviceaccount", AGENT, "-n", "strict", check=True)
    printed = objects_of(manifests.template(helm).stdout)
    bodies = {body["metadata"]["name"]: body for body in printed if body["kind"] in ("Deployment", "DaemonSet")}
    answers = {}
    for name in (CONTROLLER, AGENT):
        spec = {**bodies[name]["spec"]["template"]["spec"], "priorityClassName": ""}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        answers[name] = call(empty.admin, "POST", "/api/v1/namespaces/strict/pods", body, dryRun="All")
    assert answers[CONTROLLER].allowed, answers[CONTROLLER].message
    assert "violates PodSecurity" in answers[AGENT].message


def test_pods_of_another_mps_user_have_a_warning(empty: RealCluster, helm: Path) -> None:
    done = manifests.template(helm, "--set", "mps.userID=1000", "--show-only", "templates/25-policy-mps-user.yaml")
    empty.kubectl("apply", "-f", "-", stdin=done.stdout, check=True)

    def warning(resource: str, user: int | None, pod_user: int | None) -> str:
        limits = {"limits": {resource: "1"}}
        container = {"name": "c", "image": "i", "resources": limits, "securityContext": {"runAsUser": user}}
        spec = {"containers": [container], "securityContext": {"runAsUser": pod_user}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        return empty.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(body), check=True)

    eventually(lambda: "Warning" in warning("nvidia.com/gpu-10gb", None, None), "the policy is in force")
    said = warning("nvidia.com/gpu-10gb", 0, 1000)
    assert "container c requests an MPS slice and does not run as user 1000" in said
    assert "created" in said
    for resource, user, pod_user in (
        ("nvidia.com/gpu-10gb", 1000, None),
        ("nvidia.com/gpu-10gb", None, 1000),
        ("nvidia.com/gpu", 0, 0),
    ):
        assert "Warning" not in warning(resource, user, pod_user)
    empty.kubectl("delete", "-f", "-", stdin=done.stdout, check=True)


def test_upgrade_and_rollback_change_what_differs_and_removal_leaves_the_crd(release: Release) -> None:
    release.install({})
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gpuplan-agent"
    before = apply.get(release.cluster.admin, policy)["metadata"]["uid"]
    node_plan = plan("kept")
    assert call(release.cluster.admin, "POST", PLANS, node_plan).allowed

    def state() -> tuple[int, int, int]:
        both = [("deployments", CONTROLLER), ("daemonsets", AGENT), ("daemonsets", PLUGIN)]
        generations = [release.workload(kind, name)["metadata"]["generation"] for kind, name in both]
        return (generations[0], generations[1], generations[2])

    assert state() == (1, 1, 1)
    release.helm("upgrade", NAME, str(manifests.CHART), values={"batchWindowIdleSeconds": 2})
    assert state() == (2, 1, 1), "settings of the controller replace the controller alone"
    release.helm("rollback", NAME, "1")
    assert state() == (3, 1, 1)
    config = apply.get(release.cluster.admin, f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/gpuplan-controller")
    assert "batchWindowIdleSeconds: 1\n" in config["data"]["config.yaml"]
    assert apply.get(release.cluster.admin, policy)["metadata"]["uid"] == before, "a policy is never away"

    release.helm("uninstall", NAME, "--wait")
    assert release.remaining() == []
    assert call(release.cluster.admin, "GET", f"{PLANS}/kept").allowed
    assert call(release.cluster.admin, "DELETE", f"{PLANS}/kept").allowed


def test_a_pod_gets_its_slice_from_what_the_chart_installed(
    release: Release, programs: Binaries, folder: Path, request: pytest.FixtureRequest
) -> None:
    cluster, name = release.cluster, "gpu-node-1"
    with closing(HeldPort()) as controller_port, closing(HeldPort()) as agent_port:
        release.install(values_for(folder, controller_port.number, agent_port.number))
        node = ChartNode(name, release, folder)
        request.addfinalizer(node.close)
        controller = Program(release, "deployments", CONTROLLER, folder)
        request.addfinalizer(controller.kill)
        token = cluster.token(CONTROLLER)
        controller.start("--kubeconfig", kubeconfig(cluster, folder, token))
        node.start()
        eventually(lambda: call(cluster.admin, "GET", f"{PLANS}/{name}").allowed, "the plan is there", SECONDS)
        # Three more GPUs would have four lines each; deviceListStrategy, which is not the default here, has one.
        most = 80 - 3 * 4 + 1
        describe = partial(cluster.kubectl, "describe", "gpp", name, check=True)
        eventually(lambda: len(describe().splitlines()) <= most, "the plan is short to read", SECONDS, seen=describe)

        pod = objects.manifest(objects.pod("needs-a-slice", limits={SLICE: 1}))
        apply.create(cluster.admin, PODS, pod)
        request.addfinalizer(lambda: call(cluster.admin, "DELETE", f"{PODS}/needs-a-slice", gracePeriodSeconds="0"))
        eventually(lambda: phase(cluster, "needs-a-slice") == "Running", "the pod runs", SECONDS)
        eventually(lambda: ready(cluster, name), "the plan is Ready", SECONDS)
        for program in (controller, node.agent):
            for probe in ("livenessProbe", "readinessProbe"):
                eventually(partial(program.answers, probe), f"{program.log.stem} passes its {probe}")

        for program in (controller, node.agent, node.plugin):
            code, seconds = program.end()
            assert code == 0, f"{program.log.stem} after {seconds:.1f} s: {program.log.read_text()[-2000:]}"
            assert "orbidden" not in program.log.read_text(), "the chart's rights are enough"
        lease = apply.get(cluster.admin, f"{LEASES}/{names.CONTROLLER_LEASE}")
        assert not lease["spec"].get("holderIdentity"), "the Lease is released at the end"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


def phase(cluster: RealCluster, name: str) -> str:
    return str(apply.get(cluster.admin, f"{PODS}/{name}")["status"].get("phase"))
