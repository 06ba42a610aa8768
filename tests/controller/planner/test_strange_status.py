"""What the agent of one node reports, its API server admits, and no GPU is like, costs that node alone."""

from typing import Any

import pytest

from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlanView
from controller.planning import plan
from tests.builders import objects
from tests.builders.models import H100
from tests.builders.objects import H100_NAME, Json
from tests.builders.views import plan_reading
from tests.controller.planner.builders import cluster, mig, mps, pod, server
from tests.counted import calls
from tests.drawn import cells, sparing

LARGEST = 10**9 - 1
"""The most that the pattern of `profiles` admits."""


def profiles(number: int, size: int = 1, starts: int = 16, first: int = 0) -> str:
    places = ",".join(map(str, range(first, first + starts)))
    return "; ".join(f"{size}g.{gb}gb id {gb} slices {size} size {size} at {places}" for gb in range(1, number + 1))


def model(name: str, said: str | None, memory_mib: int = 81559) -> Json:
    return {"name": name, "memoryMiB": memory_mib, **({"profiles": said} if said else {})}


def parts(number: int, **more: Any) -> list[Json]:
    return [
        {"resource": "nvidia.com/mig-1g.10gb", "uuid": f"MIG-{one}", "state": "Free", **more} for one in range(number)
    ]


STRANGE: dict[str, tuple[list[Json], list[Json]]] = {
    "many profiles": ([model(H100_NAME, profiles(32))], []),
    "many models": ([model(f"strange {one}", profiles(3 + one, size=1 + one % 2)) for one in range(8)], []),
    "just too many": ([model(f"strange {one}", profiles(4)) for one in range(8)], []),
    "few of them": ([model(f"few {one}", profiles(3)) for one in range(8)], []),
    "slices far away": ([model(H100_NAME, profiles(12, size=16, starts=16, first=84))], []),
    "one wide profile": ([model(H100_NAME, profiles(1, size=16, starts=1))], []),
    "profiles of one name": ([model(H100_NAME, "; ".join([profiles(1)] * 32))], []),
    "no memory": ([model(H100_NAME, profiles(3), memory_mib=0)], []),
    "less than no memory": ([model(H100_NAME, profiles(3), memory_mib=-(2**62))], []),
    "endless memory": ([model(H100_NAME, profiles(3), memory_mib=2**62)], []),
    "an endless most": (
        [model(H100_NAME, f"1g.10gb id 1 slices 1 size 1 {LARGEST} MiB most {LARGEST} at 0,1,2,3")],
        [],
    ),
    "one instance many times": ([model(H100_NAME, profiles(3))], parts(64, start=0, size=1)),
    "instances beyond the card": ([model(H100_NAME, profiles(3))], parts(64, start=15, size=16)),
    "instances without a place": ([model(H100_NAME, profiles(3))], parts(64)),
    "slices of endless memory": ([model(H100_NAME, None)], parts(64, memoryMiB=2**62)),
    "slices of negative memory": ([model(H100_NAME, None)], parts(64, memoryMiB=-(2**62))),
    "names that are no resources": (
        [model(H100_NAME, None)],
        [{"resource": f"nvidia.com/gpu-{'9' * (1 + one)}gb", "uuid": f"u{one}", "state": "Free"} for one in range(64)],
    ),
}


DEAR = ("many models", "just too many", "few of them", "profiles of one name")
DRAWN = cells([*STRANGE], ["mig", "mps", "auto"])


def strange(kind: str, cut: str, *, more_mib: int = 0) -> tuple[NodeView, PlanView]:
    """`more_mib`: as of a model that was never met before, so that nothing of it is remembered."""
    models, partitions = STRANGE[kind]
    models = [{**one, "memoryMiB": one["memoryMiB"] + more_mib} for one in models]
    gpus = [
        {
            "index": index,
            "uuid": objects.uuid_of(index % 10),
            "model": models[index % len(models)]["name"],
            "state": "Ready",
            "migMode": "Enabled",
            "partitions": partitions,
        }
        for index in range(8)
    ]
    found = plan_reading(objects.plan("strange", status={"gpus": gpus, "models": models}))
    return server("strange", *(one.view for one in found.gpus), partitioning=cut)


def ordinary(*more: tuple[NodeView, PlanView]) -> Snapshot:
    servers = [server("cut", *(mig(index, gpu_model=H100) for index in range(2)), labels={"ours": "yes"})]
    servers += [server("shared", mps(gpu_model=H100), partitioning="mps", labels={"ours": "yes"})]
    pending = [pod(f"cut-{one:02}", "1g.10gb", priority=1, selector={"ours": "yes"}) for one in range(14)]
    pending += [pod(f"shared-{one}", "10gb", priority=1, selector={"ours": "yes"}) for one in range(7)]
    pending += [pod(f"any-{gb}", f"{gb}gb") for gb in (1, 5, 79, 500)]
    pending += [pod(f"any-{name}", name) for name in ("1g.10gb", "2g.20gb", "7g.80gb", "1g.1gb", "16g.1gb")]
    return cluster(*servers, *more, pending=pending)


@pytest.mark.parametrize(("kind", "cut"), sparing(DRAWN, *(cell for cell in DRAWN if cell[0] in DEAR)))
def test_a_strange_status_costs_its_own_node_alone(kind: str, cut: str) -> None:
    usual = {one.key for one in plan(ordinary()).placed if not one.key[1].startswith("any")}
    result = plan(ordinary(strange(kind, cut)))

    assert len(usual) == 21
    assert usual <= {one.key for one in result.placed}
    assert {failure.node for failure in result.failures} <= {"strange"}
    assert result.pod_failures == ()
    assert result.cut_short is None


@pytest.mark.parametrize("kind", sparing([*STRANGE], *DEAR))
def test_to_read_and_plan_a_strange_status_takes_no_more_than_some_seconds(kind: str) -> None:
    assert calls(lambda: plan(ordinary(strange(kind, "auto", more_mib=1)))) < 15_000_000
