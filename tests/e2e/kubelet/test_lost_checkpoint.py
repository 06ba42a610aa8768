"""What a pod holds at a real kubelet that has lost its checkpoint: no second pod gets it, with an agent or without one.

Each running container has a real process in a cgroup of its pod. Second pods are bound by name, because the scheduler
would keep them away.
"""

import time
from collections.abc import Iterator

import pytest

from kube import apply
from nodeagent.handover.config import Allocation, read_ledger
from nodeagent.handover.seen_free import read_seen_free
from tests.e2e.kubelet.gpu_node import SECONDS, GpuNode, Raw, mig_item
from tests.e2e.kubelet.held import MINUTE, SMALL, for_a_while
from tests.waiting import eventually

LAYOUT = mig_item(*(("1g.10gb", start) for start in range(3)), ("3g.40gb", 4))
TIMERS_SECONDS = 12.0
"""Longer than grace period and slack together: what is held then is not held by time."""
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def ledger(node: GpuNode) -> dict[str, Allocation]:
    found = read_ledger(node.files)
    assert isinstance(found, tuple)
    return {entry.id: entry for entry in found}


def judged(node: GpuNode, raws: list[Raw]) -> list[Raw]:
    """Those that run, once the kubelet has admitted or refused each."""
    eventually(lambda: all(node.phase(raw) in ("Running", "Failed") for raw in raws), "admitted or not", SECONDS)
    return [raw for raw in raws if node.phase(raw) == "Running"]


@pytest.fixture
def refused_taint(machine_node: GpuNode) -> Iterator[None]:
    """No one may set the agent's taint, as where a webhook is down."""
    name, admin = "refuse-the-taint", machine_node.cluster.admin
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    allowed = "!object.spec.?taints.orValue([]).exists(t, t.key == 'gpuplan.dev/changing')"
    specs = {
        "Policy": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": allowed}]},
        "PolicyBinding": {"policyName": name, "validationActions": ["Deny"]},
    }
    paths = {
        "Policy": f"{ADMISSION}/validatingadmissionpolicies",
        "PolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
    }
    for kind, spec in specs.items():
        body = {"apiVersion": ADMISSION.removeprefix("/apis/"), "kind": f"ValidatingAdmission{kind}"}
        apply.create(admin, paths[kind], {**body, "metadata": {"name": name}, "spec": spec})
    taint = ("taint", "node", machine_node.name, "gpuplan.dev/changing=:NoSchedule", "--dry-run=server")
    eventually(lambda: name in machine_node.cluster.kubectl(*taint), "the taint is refused", SECONDS)
    yield
    for path in paths.values():
        apply.delete(admin, f"{path}/{name}")


@pytest.mark.parametrize("around", ["an agent", "a refused taint", "no agent"])
def test_a_kubelet_without_its_checkpoint_gives_no_held_slice_away(
    node: GpuNode, around: str, request: pytest.FixtureRequest
) -> None:
    if around == "a refused taint":
        request.getfixturevalue("refused_taint")
    first = node.create_pod("first", SMALL)
    held = node.visible(first)
    given = ledger(node)
    free = set(node.offered(SMALL)) - {held}
    eventually(
        lambda: all(read_seen_free(node.files).allocations.get(i) == given[i].at for i in free & given.keys()),
        "what an earlier pod had is marked as seen free",
        SECONDS,
    )
    if around == "no agent":
        node.supervisor.remove("agent")
    node.kubelet.kill()
    node.kubelet.paths.checkpoint.unlink()
    node.kubelet.start()
    eventually(lambda: node.offered(SMALL), "the plugin has registered again", SECONDS)

    # Two at most: from when the kubelet has admitted the holder again, it counts that one against what is healthy, too.
    running = judged(node, [node.create_pod(f"other-{number}", SMALL, bound=True) for number in range(3)])
    got = [node.visible(raw) for raw in running]
    assert got
    assert sorted(got) == sorted(free.intersection(got))
    for_a_while(TIMERS_SECONDS, lambda: _held_once(node, held, given[held].at, first))
    if around == "no agent":
        node.start_agent()
    node.kubelet.runtime.end(node.wait_running(first).container_id)
    began = time.monotonic()
    eventually(lambda: held in node.offered(SMALL), "offered again, once its holder has ended", MINUTE)
    print(f"{around}: offered again {time.monotonic() - began:.0f} s after its holder's end")


def _held_once(node: GpuNode, held: str, given_at: float, holder: Raw) -> None:
    assert held in node.slices()
    assert held not in node.offered(SMALL)
    assert ledger(node)[held].at == given_at
    assert node.phase(holder) == "Running"
