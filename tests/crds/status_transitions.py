"""Every optional field of a plan's status, going from present to absent: one table for the simulated and the real API.

`FULL` has every field of `PlanStatus`; `transitions` walks the types and yields, for each optional field, a status
without it, for each list one with an empty list, and for each object one without any of its optional fields. A field
that is added to the types and not to `FULL` fails `test_the_full_status_has_every_field`.
"""

from collections.abc import Iterator
from typing import Any

from crds.v1alpha1 import names
from crds.v1alpha1.base import Wire
from crds.v1alpha1.status import (
    ConditionStatus,
    DevicePluginStatus,
    GpuStatus,
    LastChange,
    ModelReport,
    NodeFacts,
    PartitionStatus,
    PlanStatus,
    Summary,
)

TIME = "2026-01-01T00:00:00Z"
FULL = PlanStatus(
    observed_generation=1,
    summary=Summary(mode="Auto", gpus=1, model="H100-80GB", mig="1/2", mps="0/3", whole="0/1"),
    conditions=[
        ConditionStatus(
            type=kind.value,
            status="True",
            observed_generation=1,
            last_transition_time=TIME,
            reason="Confirmed",
            message="All GPUs match the plan.",
        )
        for kind in sorted(names.Condition)
        if kind is not names.Condition.AGENT_ALIVE
    ],
    node=NodeFacts(uid="u", boot_id="b", driver_version="d", agent_version="a"),
    models=[
        ModelReport(
            name="NVIDIA H100 80GB HBM3",
            memory_mib=81559,
            compute_capability="9.0",
            profiles="1g.10gb id 19 slices 1 size 1 9856 MiB at 0,1; 1g.20gb id 15 slices 1 size 2 at ",
        )
    ],
    gpus=[
        GpuStatus(
            index=0,
            uuid="GPU-1",
            model="NVIDIA H100 80GB HBM3",
            state="Ready",
            plan_hash="h",
            reason="Confirmed",
            message="As planned.",
            mig_mode="Enabled",
            health="Unhealthy",
            missing=["2g.20gb"],
            last_change=LastChange(time=TIME, generation=1, created=["mig-1g.10gb at 0"], destroyed=["gpu"]),
            partitions=[
                PartitionStatus(
                    resource="nvidia.com/mig-1g.10gb",
                    uuid="MIG-1",
                    start=0,
                    size=1,
                    memory_mib=9856,
                    state="Used",
                    pod="default/p",
                )
            ],
        )
    ],
    device_plugin=DevicePluginStatus(
        backend="gpuplan",
        config="/c",
        device_list_strategy="envvar",
    ),
)


def body(name: str, status: Any) -> dict[str, Any]:
    """A plan whose status is applied."""
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "status": status}


def absent_fields(model: Wire, path: str = "") -> list[str]:
    """Fields that this object, or anything in it, does not have."""
    found = []
    for field in type(model).model_fields:
        value, here = getattr(model, field), f"{path}.{field}".strip(".")
        if value is None or value == []:
            found.append(here)
        for member in value if isinstance(value, list) else [value]:
            if isinstance(member, Wire):
                found += absent_fields(member, here)
    return found


def transitions() -> list[tuple[str, PlanStatus]]:
    """A name, and what the status becomes after `FULL`."""
    return [(name, after) for name, after in _less(FULL, "") if isinstance(after, PlanStatus)]


def _less(model: Wire, path: str) -> Iterator[tuple[str, Wire]]:
    optional = [name for name, field in type(model).model_fields.items() if not field.is_required()]
    if path:  # a status always has its generation
        yield f"{path} without optional fields", model.model_copy(update=dict.fromkeys(optional))
    for field in type(model).model_fields:
        value, here = getattr(model, field), f"{path}.{field}".strip(".")
        if field in optional:
            yield f"{here} absent", model.model_copy(update={field: None})
        if isinstance(value, list):
            yield f"{here} empty", model.model_copy(update={field: []})
        members = value if isinstance(value, list) else [value]
        for index, member in enumerate(members):
            if isinstance(member, Wire):
                for name, changed in _less(member, here):
                    whole = [*members[:index], changed, *members[index + 1 :]] if isinstance(value, list) else changed
                    yield f"{name}{f' [{index}]' if index else ''}", model.model_copy(update={field: whole})
