"""The simulator against the real kube-scheduler on random clusters, and what it makes of plans.

Every disagreement is printed with the seed of its cluster: `random_cluster(SEED)` makes it again. The sums are printed
always, each plan's outcome with `pytest -rP`. GPUPLAN_E2E_CLUSTERS sets how many clusters (200), GPUPLAN_E2E_SEEDS how
many plans of each mix (1): `make e2e-scale` tries more.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.instances import MIXES, instance
from kube import apply
from tests.e2e.planned_pods import Manner, Outcome, measure
from tests.e2e.random_clusters import random_cluster
from tests.e2e.random_pods import Json
from tests.e2e.real_cluster import MERGE, call
from tests.e2e.rig.controlplane import Binaries
from tests.e2e.scheduler_rig import CLAIMS, VOLUMES, SchedulerRig, Word, word_of
from tests.e2e.simulated import Simulated
from tests.waiting import eventually

SECONDS = 3600
LEAST_BOUND = 0.95
"""Of the planned pods, where nodes grow at once."""
MANNERS = (
    Manner(name="not nominated", nominate=False),
    Manner(name="nominated", nominate=True),
    Manner(name="nominated, nodes apart", nominate=True, apart=True),
)
SIZE = {"nodes": 5, "gpus": 4, "pods": 50}


@pytest.mark.parametrize(
    ("message", "word"),
    [
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a.b/c: d}. preemption: 0/3 "
            "nodes are available: 3 Preemption is not helpful for scheduling.",
            (3, (("Insufficient cpu", 1), ("node(s) had untolerated taint {a.b/c: d}", 2))),
        ),
        ("0/1 nodes are available: 1 Too many pods.", (1, (("Too many pods", 1),))),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", (2, ())),
        ("no nodes available to schedule pods", (0, ())),
    ],
)
def test_what_a_message_counts(message: str, word: tuple[int, tuple[tuple[str, int], ...]]) -> None:
    found: Word = word_of(message)
    assert (found.nodes, found.reasons) == word


@pytest.fixture(scope="module")
def rig(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerRig]:
    found = SchedulerRig(programs, tmp_path_factory.mktemp("scheduler"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


def pods_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def set_up(rig: SchedulerRig, number: int) -> list[Json]:
    """The cluster as the scheduler knows it when this returns; the pods that are to be scheduled."""
    made = random_cluster(number)
    rig.create((VOLUMES, volume) for volume in made.volumes)
    rig.create((CLAIMS, claim) for claim in made.claims)
    named = {claim["metadata"]["name"] for claim in made.claims if "volumeName" in claim["spec"]}

    def settled() -> bool:
        bound = {claim["metadata"]["name"] for claim in rig.all_of(CLAIMS) if claim["status"].get("phase") == "Bound"}
        phases = {volume["status"].get("phase") for volume in rig.all_of(VOLUMES)}
        return named <= bound and phases <= {"Bound", "Available"}

    if made.volumes:
        eventually(settled, "claims are bound to their volumes")
    running = rig.create((pods_path(pod), pod) for pod in made.running)
    for pod in running:
        name = pod["metadata"]["name"]
        if name in made.finished:
            status = f"{pods_path(pod)}/{name}/status"
            assert call(rig.api, "PATCH", status, {"status": {"phase": "Succeeded"}}, MERGE).allowed
        elif name in made.ending:
            rig.delete_pod(pod, grace_seconds=3600)
    rig.create_nodes(made.nodes)
    rig.barrier(volumes=bool(made.volumes))
    return list(made.pending)


def compare(rig: SchedulerRig, number: int, counts: Counter[str]) -> Iterator[str]:
    """Disagreements in one cluster."""
    pending = set_up(rig, number)
    simulated = Simulated(rig)
    counts["nodes"] += len(simulated.nodes)
    for manifest in pending:
        pod = apply.create(rig.api, pods_path(manifest), manifest)
        word = rig.word(pod)
        counts["bound" if word.node else "refused"] += 1
        counts["refused before any node was looked at"] += not word.node and not word.reasons
        counts.update(f"reason {reason}" for reason, _ in word.reasons)
        problem = simulated.disagreement(pod, word)
        counts["disagreeing" if problem else "agreeing"] += 1
        if problem:
            yield f"cluster {number}, pod {pod['metadata']['name']}: {problem}"
        if word.node:
            simulated.read()
        else:
            rig.delete_pod(pod)


@pytest.mark.timeout(SECONDS)
def test_random_clusters(rig: SchedulerRig, cluster_count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the scheduler binds, the simulator finds a fit; where it does not, it counts the same reasons."""
    counts = Counter({"disagreeing": 0})
    problems: list[str] = []
    for number in range(cluster_count):
        problems += compare(rig, number, counts)
        rig.clear()
        counts["clusters"] += 1
    with capsys.disabled():
        print(f"\nkube-scheduler {rig.plane.version}")
        print("\n".join(f"{count:>7}  {name}" for name, count in sorted(counts.items())))
    print("\n".join(problems))
    assert not problems


@pytest.mark.timeout(SECONDS)
def test_planned_pods(rig: SchedulerRig, seed_count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Nominated, planned pods are bound. How many were bound where they were planned is printed for each manner.

    The scheduler clears a nomination when it tries the pod in vain, as it does when another node grows; another pod may
    then take its place, and it takes the other's. So it is frequent where nodes grow within a tenth of a second; where
    the two request different numbers of slices, one may be left over. With nodes apart no pod is.
    """
    totals = {manner: Counter[str]() for manner in MANNERS}
    for mix in ("plain", "several", "tainted", "cpu"):
        for seed in range(1, seed_count + 1):
            snapshot = instance(**SIZE, seed=seed, mix=MIXES[mix])
            for manner, total in totals.items():
                outcome = measure(rig, snapshot, manner)
                print(described(f"{mix} {seed}", manner, outcome))
                total.update({"planned": outcome.planned, "bound": outcome.bound, "as planned": outcome.as_planned})
    with capsys.disabled():
        print(f"\nkube-scheduler {rig.plane.version}: {SIZE}, {seed_count} of each mix")
        for manner, total in totals.items():
            shares = ", ".join(f"{name} {total[name] / total['planned']:.1%}" for name in ("bound", "as planned"))
            print(f"{manner.name}: of {total['planned']} planned pods {shares}")
    for manner, total in totals.items():
        assert not manner.nominate or total["bound"] >= total["planned"] * (1.0 if manner.apart else LEAST_BOUND)


def described(name: str, manner: Manner, outcome: Outcome) -> str:
    exchanged = ", slices as planned on every node" if outcome.only_exchanged else ""
    return (
        f"{name}, {manner.name}: {outcome.pending} pending, {outcome.planned} planned, {outcome.bound} of them bound, "
        f"{outcome.as_planned} as planned, {outcome.others_bound} others bound{exchanged}"
    )
