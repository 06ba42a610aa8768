"""Ways to install deploy/: the commands of README.md, kustomize, and a namespace of another name.

A control plane of its own, for policies and rights are of the whole cluster.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds.v1alpha1 import names
from deploy.generate import manifests
from kube import apply
from tests.builders.objects import lease
from tests.e2e.fleet import daemon_pod, node
from tests.e2e.real_cluster import (
    AGENT,
    CONTROLLER,
    CRD,
    MANIFESTS,
    NODES,
    PLANS,
    ROOT,
    RealCluster,
    call,
    plan,
    running_cluster,
)
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.rig.controlplane.tenants import manifests_of, objects_of
from tests.waiting import eventually

ELSEWHERE = "team-gpus"


@pytest.fixture
def new(programs: Binaries, tmp_path: Path) -> Iterator[RealCluster]:
    """A cluster as it is after its own installation."""
    with running_cluster(programs, tmp_path) as found:
        yield found


@pytest.fixture
def empty(new: RealCluster) -> RealCluster:
    new.kubectl("apply", "-f", str(CRD), check=True)
    new.wait_established()
    return new


def test_the_commands_of_the_readme_install_and_remove(new: RealCluster, helm: Path, tmp_path: Path) -> None:
    """All but the first two, which make and upload the image, and the one on the node, which is the driver's."""
    image, copy, *typed_in = commands_below("README.md", "Install")
    commands = [command for command in typed_in if not command.startswith("nvidia-smi ")]
    (removal,) = commands_below("deploy/README.md", "Removing")
    (crd, upgrade) = commands_below("deploy/README.md", "Upgrading")
    assert image.startswith("make release ")
    assert copy.startswith("skopeo copy ")
    assert len(commands) == 4
    body = node("gpu-node-1")
    del body["metadata"]["labels"][names.LABEL_PARTITIONING]
    apply.create(new.admin, NODES, body)
    seconds = {command: typed(command, new, helm, tmp_path) for command in commands}
    eventually(lambda: daemon_pod(new, AGENT, "gpu-node-1"), "the node has an agent")
    assert call(new.admin, "GET", f"{PLANS}/none").status == 404, "plans are served"
    seconds |= {command: typed(command, new, helm, tmp_path) for command in (crd, upgrade, removal)}
    left = new.kubectl("get", "deployments,daemonsets,pods", "-n", names.NAMESPACE, "-o", "name", check=True)
    assert "deployment" not in left
    assert "daemonset" not in left
    print("\n".join(f"{took:6.1f} s  {command}" for command, took in seconds.items()))


def commands_below(page: str, heading: str) -> list[str]:
    """The lines of the first code block below this heading."""
    text = (ROOT / page).read_text().partition(f"\n## {heading}\n")[2]
    fenced = re.search(r"```sh\n(.*?)```|\n((?:    [^\n]*\n)+)", text, re.DOTALL)
    assert fenced is not None
    return [line.strip() for line in (fenced.group(1) or fenced.group(2)).splitlines()]


def typed(command: str, cluster: RealCluster, helm: Path, folder: Path) -> float:
    """Run it in a checkout as an administrator; the seconds that it took."""
    path = f"{helm.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    config = folder / "typed.kubeconfig"
    config.write_text(cluster.plane.kubeconfig())
    environ = {"PATH": path, "KUBECONFIG": str(config), "HOME": str(folder)}
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return time.monotonic() - began


def test_kustomize_ships_the_same_in_the_same_order(empty: RealCluster) -> None:
    made = list(objects_of(empty.kubectl("kustomize", str(MANIFESTS.parent), check=True)))
    assert _words(made) == _words(list(manifests_of(MANIFESTS)))
    printed = empty.kubectl("apply", "-k", str(MANIFESTS.parent), check=True)
    assert printed.count(" created") == len(made)


def _words(found: Any) -> Any:
    """Without line breaks: kustomize doubles those of folded text."""
    if isinstance(found, dict):
        return {key: _words(item) for key, item in found.items()}
    if isinstance(found, list):
        return [_words(item) for item in found]
    return " ".join(found.split()) if isinstance(found, str) else found


def test_another_namespace(empty: RealCluster, helm: Path) -> None:
    """By the chart, for the policies know their accounts by name."""
    printed = manifests.template(helm, "--namespace", ELSEWHERE, "--set", "namespace.create=true").stdout
    empty.kubectl("apply", "-f", "-", stdin=printed, check=True)
    planned = plan("somewhere", planned={"gpus": []})
    eventually(lambda: call(empty.admin, "POST", PLANS, planned, dryRun="All").status == 403, "policies are in force")

    controller = empty.bearer(empty.kubectl("create", "token", CONTROLLER, "-n", ELSEWHERE, check=True).strip())
    eventually(lambda: call(controller, "POST", PLANS, plan("somewhere")).allowed, "the controller creates plans")
    refused = call(controller, "POST", PLANS, plan("elsewhere", mode="Manual"))
    assert refused.status == 403
    assert "a new plan holds nodeName only" in refused.message

    leases = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
    assert call(controller, "POST", leases.format(ELSEWHERE), lease(CONTROLLER)).allowed
    assert call(controller, "POST", leases.format("default"), lease(CONTROLLER)).status == 403

    agent = empty.bearer(empty.kubectl("create", "token", AGENT, "-n", ELSEWHERE, check=True).strip())
    refused = call(agent, "POST", leases.format(ELSEWHERE), lease(names.agent_lease("n")))
    assert "the token is not bound to a pod on a node" in refused.message
