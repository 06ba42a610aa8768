"""What the pages look up with kubectl, run: each command is one that an API server answers.

A cluster of the sandbox's API server holds one object for each name that the pages use. What it does not serve is left
out: logs and shells of pods, other users' rights, and what another program installs.
"""

import re
from collections.abc import Iterator

import pytest

from crds.v1alpha1.names import API_VERSION, CONTROLLER_LEASE, NAMESPACE, PLURAL, agent_lease
from deploy.generate.crd import definition
from kube import apply, clients
from tests.apiserver import ApiServer
from tests.builders.objects import manifest, node, plan, pod
from tests.docs.pages import Command, commands
from tests.drawn import points
from tests.sandbox.apiserver.probe import Kubectl

NODE = "gpu-node-1"
READING = {"get", "describe", "explain"}
NAMES = {"NODE": NODE, "POD": "a-pod", "NAMESPACE": "default", "NAME": "a-pod"}
NOT_SERVED = (
    "--raw",
    "replicaset",
    "deploy",
    "ds",
    "daemonset",
    "crd",
    "runtimeclass",
    "clusterpolicy",
    "--patch-file",
)


def in_the_cluster(command: Command) -> tuple[str, ...]:
    """With the names of the cluster in place of those that a reader fills in."""
    pattern = re.compile(r"\b(" + "|".join(NAMES) + r")\b")
    return tuple(pattern.sub(lambda found: NAMES[found[1]], word) for word in command.words[1:])


RUN = sorted(
    {
        in_the_cluster(command)
        for command in commands()
        if command.words[0] == "kubectl"
        and command.whole
        and (command.words[3] if command.words[1] == "-n" else command.words[1]) in READING
        and not set(command.words) & set(NOT_SERVED)
    }
)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder = tmp_path_factory.mktemp("kubectl")
    with ApiServer() as server:
        api = clients.for_url(server.url)
        apply.create(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        apply.create(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        apply.create(api, "/api/v1/nodes", manifest(node(NODE)))
        apply.create(api, f"/apis/{API_VERSION}/{PLURAL}", manifest(plan(NODE)))
        for namespace in ("default", NAMESPACE):
            for name in ("a-pod", "infer", "notebook"):
                apply.create(api, f"/api/v1/namespaces/{namespace}/pods", manifest(pod(name, namespace=namespace)))
        for name in (CONTROLLER_LEASE, agent_lease(NODE)):
            leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
            apply.create(api, leases, {"metadata": {"name": name}, "spec": {"holderIdentity": "a-pod"}})
        (folder / "kubeconfig").write_text(server.kubeconfig())
        yield Kubectl(folder / "kubeconfig", folder / "cache")


def test_commands_are_found() -> None:
    assert len(RUN) > 25


@pytest.mark.slow
@pytest.mark.parametrize("words", points(RUN), ids=" ".join)
def test_an_api_server_answers(words: tuple[str, ...], kubectl: Kubectl) -> None:
    kubectl(*words)
