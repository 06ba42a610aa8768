"""Whatever is created and destroyed in whatever order: the simulated hardware stays possible."""

from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import Instance, Layout, check_layout
from partitioning.models import GpuModel, known_models
from sandbox.driver.compute_instances import (
    create_compute_instance,
    destroy_compute_instance,
    full_profile,
    mig_device_uuid,
    mig_devices,
)
from sandbox.driver.gpu_instances import create_gpu_instance, destroy_gpu_instance
from sandbox.driver.machine import create_state
from sandbox.driver.state import GpuState
from sandbox.driver.status import Refused, Status

MIG_MODELS = [model for model in known_models() if model.profiles and all(spec.starts for spec in model.profiles)]
Step = tuple[int, int]  # what to do, and to which of the candidates


def layout_of(gpu: GpuState) -> Layout:
    return Layout.of(
        Instance(start=found["start"], size=found["size"], profile=found["profile"]) for found in gpu["gpu_instances"]
    )


@given(
    model=st.sampled_from(MIG_MODELS),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=30),
)
def test_the_hardware_stays_possible(model: GpuModel, steps: list[Step]) -> None:
    machine = create_state([(model, {"mig_enabled": True})], "property")
    gpu = machine["gpus"][0]
    for kind, number in steps:
        if kind == 0 and gpu["gpu_instances"]:
            instance = gpu["gpu_instances"][number % len(gpu["gpu_instances"])]
            for compute in list(instance["compute_instances"]):
                destroy_compute_instance(gpu, instance, compute)
            destroy_gpu_instance(gpu, instance)
            continue
        spec = model.profiles[number % len(model.profiles)]
        start = spec.starts[(number + kind) % len(spec.starts)]
        wanted = Layout.of([*layout_of(gpu).instances, Instance(start=start, size=spec.size, profile=spec.name)])
        room = check_layout(model, wanted) is None
        try:
            instance = create_gpu_instance(machine, gpu, spec.profile_id, (start, spec.size))
        except Refused as refusal:
            assert refusal.status == Status.INSUFFICIENT_RESOURCES  # noqa: PT017 - the answer that is looked at
            assert not room
            continue
        assert room
        create_compute_instance(machine, gpu, instance, full_profile(spec).id)
        assert check_layout(model, layout_of(gpu)) is None
        ids = [found["id"] for found in gpu["gpu_instances"]]
        assert len(set(ids)) == len(ids)
        uuids = {mig_device_uuid(gpu, *device) for device in mig_devices(gpu)}
        assert len(uuids) == len(mig_devices(gpu))
