"""An answer of the driver that is missing costs what needs it, and one that was never seen before costs one GPU."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from crds.v1alpha1.status import profiles_of
from sandbox.driver import processes
from sandbox.driver.status import Status
from tests import faults
from tests.builders.models import H100, T4
from tests.drawn import cells
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.hardware.machine import NVML, parent
from tests.nodeagent.items import mig
from tests.nodeagent.report.schema import check
from tests.nodeagent.world import World

ABSURD = 2**32 - 1
MISSING = [
    Status.NOT_SUPPORTED,
    Status.NO_PERMISSION,
    Status.INVALID_ARGUMENT,
    Status.NOT_FOUND,
    Status.FUNCTION_NOT_FOUND,
    Status.ARGUMENT_VERSION_MISMATCH,
]
WHOLE = {"index": 0, "whole": {}}
SLICES = {"index": 0, "mps": {"slices": [{"memoryGB": 10, "count": 2}]}}
REPLICAS = {"index": 0, "mps": {"replicas": 2}}


def name(*_: Any) -> Any:
    return b"\xff".decode()


def many(_handle: Any, _profile: int, _array: Any, count: Any) -> None:
    count._obj.value = 17


def places(_handle: Any, _profile: int, _array: Any, count: Any) -> None:
    count._obj.value = ABSURD


def mode(_handle: Any) -> list[int]:
    return [1, 1, 1]


def lacks(*_: Any) -> Any:
    raise NVML.NVMLLibraryMismatchError("Unversioned function called")


def odd(*_: Any) -> Any:
    raise ValueError("an answer never seen before")


ODD: dict[str, tuple[str, Callable[..., Any]]] = {
    "a garbled name": ("nvmlDeviceGetName", name),
    "a 17th instance": ("nvmlDeviceGetGpuInstances", many),
    "an absurd count of MIG devices": ("nvmlDeviceGetMaxMigDeviceCount", lambda _: ABSURD),
    "an absurd count of placements": ("nvmlDeviceGetGpuInstancePossiblePlacements", places),
    "a third MIG mode": ("nvmlDeviceGetMigMode", mode),
    "a function that the library lacks": ("nvmlDeviceGetName", lacks),
}


class Renamed:
    """The info of a profile under another name."""

    def __init__(self, info: Any, name: str) -> None:
        self._info, self.name = info, name

    def __getattr__(self, field: str) -> Any:
        return getattr(self._info, field)


def of_gpu(uuid: str, monkeypatch: pytest.MonkeyPatch, symbol: str, answer: Callable[..., Any]) -> None:
    """This answer on one GPU alone."""
    real = getattr(NVML, symbol)

    def answered(handle: Any, *arguments: Any) -> Any:
        mine = NVML.nvmlDeviceGetUUID(parent(handle)) == uuid
        return answer(handle, *arguments) if mine else real(handle, *arguments)

    monkeypatch.setattr(NVML, symbol, answered)


@pytest.mark.parametrize("odd", ODD)
def test_an_answer_never_seen_before_costs_one_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    of_gpu(world.gpu(0).uuid, monkeypatch, *ODD[odd])
    world.apply(mig(0, ("3g.40gb", 0)), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Failed", "Unhealthy")
    assert world.found(1) == ("Ready", "Confirmed")
    assert world.layout(1) == "7g.80gb at 0"
    check(world)


@pytest.mark.parametrize("uuid", ["", "GPU-0", "GPU-\n", "\0", "x" * 200, "MIG-", None])
def test_a_garbled_uuid_costs_one_gpu(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, uuid: str | None) -> None:
    """It would be a device id, a file's name, and a field of the status."""
    world = make_world(plain(), cut(("3g.40gb", 0)))
    mine, real = world.gpu(0).uuid, NVML.nvmlDeviceGetUUID

    def answered(handle: Any) -> Any:
        return uuid if real(handle) == mine else real(handle)

    monkeypatch.setattr(NVML, "nvmlDeviceGetUUID", answered)
    world.apply(WHOLE, mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Failed", "Unhealthy")
    assert world.found(1) == ("Ready", "Confirmed")
    assert world.advertised() == {"nvidia.com/mig-7g.80gb": 1}
    check(world)


@pytest.mark.parametrize("kind", [cut, plain])
def test_two_gpus_of_one_uuid_cost_no_third(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, kind: Callable[[], Any]
) -> None:
    """As where a card leaves while the GPUs are read one after another. Which is which is not known."""
    world = make_world(kind(), kind(), cut(("3g.40gb", 0)))
    mine, other, real = world.gpu(0).uuid, world.gpu(1).uuid, NVML.nvmlDeviceGetUUID

    def answered(handle: Any) -> Any:
        return other if real(handle) == mine else real(handle)

    monkeypatch.setattr(NVML, "nvmlDeviceGetUUID", answered)
    world.apply(mig(2, ("7g.80gb", 0)))

    world.settle()

    assert [world.found(index) for index in (0, 1)] == [("Unmanaged", "Unhealthy")] * 2
    assert world.found(2) == ("Ready", "Confirmed")
    assert world.advertised() == {"nvidia.com/mig-7g.80gb": 1}
    check(world)


@pytest.mark.parametrize("uuid", ["MIG-", "MIG-\0", "MIG-" + "x" * 300, "of the other one"])
def test_a_mig_device_without_a_uuid_of_its_own_costs_one_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, uuid: str
) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)), cut(("3g.40gb", 0)))
    (mine, other), real = [instance.uuid for instance in world.gpu(0).instances], NVML.nvmlDeviceGetUUID

    def answered(handle: Any) -> Any:
        return (other if uuid.startswith("of") else uuid) if real(handle) == mine else real(handle)

    monkeypatch.setattr(NVML, "nvmlDeviceGetUUID", answered)
    world.apply(mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Unmanaged", "Unhealthy")
    assert world.found(1) == ("Ready", "Confirmed")
    check(world)


@pytest.mark.parametrize("text", ["", "a/b", "1g.10gb\0", "x" * 64])
def test_a_profile_whose_name_is_no_resources_costs_one_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    mine, real = world.gpu(0).uuid, NVML.nvmlDeviceGetGpuInstanceProfileInfo

    def answered(handle: Any, number: int) -> Any:
        found = real(handle, number)
        return Renamed(found, f"MIG {text}") if NVML.nvmlDeviceGetUUID(handle) == mine else found

    monkeypatch.setattr(NVML, "nvmlDeviceGetGpuInstanceProfileInfo", answered)
    world.restart()
    world.apply(mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Unmanaged", "Unhealthy")
    assert world.found(1) == ("Ready", "Confirmed")
    check(world)


def test_a_name_longer_than_any_costs_nothing(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    monkeypatch.setattr(NVML, "nvmlDeviceGetName", lambda _: "x" * 200)
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle()

    assert world.found() == ("Ready", "Confirmed")
    check(world)


def test_an_absurd_count_of_gpus_hides_none_that_is_there(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    monkeypatch.setattr(NVML, "nvmlDeviceGetCount", lambda: ABSURD)
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Ready", "Confirmed")
    assert world.found(15) == ("Unmanaged", "Unhealthy")
    check(world)


def test_sixteen_gpus_are_believed_and_each_is_served(make_world: MakeWorld) -> None:
    """As many as one node has: the last one counts as much as the first."""
    world = make_world(*[plain()] * 15, cut(("3g.40gb", 0)))
    world.apply(*({"index": index, "whole": {}} for index in range(15)), mig(15, ("7g.80gb", 0)))

    world.settle()

    assert {world.found(index) for index in range(16)} == {("Ready", "Confirmed")}
    assert world.advertised() == {"nvidia.com/gpu": 15, "nvidia.com/mig-7g.80gb": 1}
    check(world)


def test_a_seventeenth_gpu_is_not_served_and_named(make_world: MakeWorld) -> None:
    world = make_world(*[plain()] * 18)
    world.apply(*({"index": index, "whole": {}} for index in range(16)))

    world.settle()

    assert {world.found(index) for index in range(16)} == {("Ready", "Confirmed")}
    assert world.advertised() == {"nvidia.com/gpu": 16}
    assert world.condition("GPUsHealthy")["message"] == (
        "GPU 16: the driver counts more GPUs than the 16 of a node that gpuplan serves: this one and those after it "
        "are neither changed nor advertised; take them out of the node, or ask gpuplan's maintainers for more"
    )
    assert world.condition("Ready")["status"] == "True"
    check(world)


def test_sixteen_mig_devices_are_believed(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(cut(("3g.40gb", 0)))
    monkeypatch.setattr(NVML, "nvmlDeviceGetMaxMigDeviceCount", lambda _: 16)
    world.apply(mig(0, ("3g.40gb", 0)))

    world.settle()

    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("code", [None, Status.UNKNOWN, Status.TIMEOUT, Status.GPU_IS_LOST])
def test_a_driver_that_does_not_tell_its_version_costs_no_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, code: Status | None
) -> None:
    """Whatever it answers: what needs the version does without it."""
    world = make_world(cut(("3g.40gb", 0)), plain())
    if code is None:
        monkeypatch.setattr(NVML, "nvmlSystemGetDriverVersion", odd)
    else:
        faults.inject(world.machine, "nvmlSystemGetDriverVersion", status=code, times=faults.ALWAYS)
    world.restart()
    world.apply(mig(0, ("7g.80gb", 0)), {"index": 1, "whole": {}})

    world.settle()

    assert world.found(0) == world.found(1) == ("Ready", "Confirmed")
    assert world.advertised() == {"nvidia.com/gpu": 1, "nvidia.com/mig-7g.80gb": 1}
    assert "driverVersion" not in world.status()["node"]
    check(world)

    monkeypatch.undo()
    faults.clear(world.machine)
    world.settle()
    assert world.status()["node"]["driverVersion"]


@pytest.mark.parametrize("symbol", ["nvmlDeviceGetCount", "nvmlInit"])
def test_a_call_of_the_node_that_is_not_understood_withdraws_what_it_offers_until_it_is(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, symbol: str
) -> None:
    world = make_world(cut(("3g.40gb", 0)), plain())
    world.apply(mig(0, ("3g.40gb", 0)), {"index": 1, "whole": {}})
    world.settle()
    everything = world.plugin.advertised()
    with monkeypatch.context() as patch:
        patch.setattr(NVML, symbol, odd)
        world.restart()
        for _ in range(12):
            world.run(10.0)

        assert "the answer is not understood: ValueError" in str(world.status()["conditions"])
        assert not any(world.plugin.advertised().values())
        assert world.plugin.listed() == {resource: dict.fromkeys(ids, False) for resource, ids in everything.items()}
        check(world)
    for _ in range(6):
        world.run(10.0)
    assert world.found(0) == world.found(1) == ("Ready", "Confirmed")
    assert world.plugin.advertised() == everything


@pytest.mark.parametrize("start", [16, 40, ABSURD])
def test_a_placement_that_the_schema_does_not_know_costs_one_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    mine, real = world.gpu(0).uuid, NVML.nvmlGpuInstanceGetInfo

    def moved(instance: Any) -> Any:
        found = real(instance)
        if NVML.nvmlDeviceGetUUID(found.device) == mine:
            found.placement.start = start
        return found

    monkeypatch.setattr(NVML, "nvmlGpuInstanceGetInfo", moved)
    world.apply(mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(1) == ("Ready", "Confirmed")
    assert world.found(0)[0] in ("Failed", "Unmanaged")
    assert world.gpu_status(0)["message"]
    check(world)


@pytest.mark.parametrize(("start", "size"), [(2**31, 4), (ABSURD, ABSURD), (0, 2**31), (0, 0), (2**31, 0)])
def test_an_absurd_place_of_a_profile_costs_one_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, start: int, size: int
) -> None:
    """A mask with a bit for each slice up to it would take all the memory of the node."""
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    real = NVML.nvmlDeviceGetGpuInstancePossiblePlacements

    def absurd(handle: Any, profile: int, array: Any, count: Any) -> None:
        real(handle, profile, array, count)
        for place in array or ():
            place.start, place.size = start, size

    of_gpu(world.gpu(0).uuid, monkeypatch, "nvmlDeviceGetGpuInstancePossiblePlacements", absurd)
    world.restart()
    world.apply(mig(0, "3g.40gb*2"), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0)[0] == "Failed"
    assert world.found(1) == ("Ready", "Confirmed")
    check(world)


NEEDED = {
    "nvmlDeviceGetMemoryInfo": "does not report how much memory",
    "nvmlDeviceGetCudaComputeCapability": "",
    "nvmlDeviceGetRemappedRows": "",
    "nvmlDeviceGetMinorNumber": "",
    "nvmlDeviceGetComputeMode": "",
}
ITEMS = {"whole": WHOLE, "mig": mig(0, ("3g.40gb", 0)), "gb": SLICES, "equal": REPLICAS}


@pytest.mark.parametrize(("what", "code"), cells([*product(ITEMS, NEEDED)], MISSING), ids=str)
def test_a_missing_answer_costs_only_what_needs_it(make_world: MakeWorld, what: tuple[str, str], code: Status) -> None:
    kind, symbol = what
    needed, item = NEEDED[symbol], ITEMS[kind]
    world = make_world(cut() if "mig" in item else plain())
    faults.inject(world.machine, symbol, status=code, times=faults.ALWAYS)
    world.apply(item)

    world.settle()

    if needed and "mps" in item:
        assert world.found() == ("Failed", "NotSupported")
        assert needed in world.gpu_status()["message"]
    else:
        assert world.found() == ("Ready", "Confirmed")
    assert "health" not in world.gpu_status()
    check(world)


def test_without_profiles_a_gpu_whose_mig_mode_is_off_is_still_served(make_world: MakeWorld) -> None:
    world = make_world(plain())
    faults.inject(
        world.machine,
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        status=Status.NO_PERMISSION,
        times=faults.ALWAYS,
    )
    world.apply(SLICES)

    world.settle()

    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("code", MISSING)
def test_a_gpu_whose_processes_are_not_listed_is_never_taken_for_free(make_world: MakeWorld, code: Status) -> None:
    world = make_world(plain())
    faults.inject(world.machine, "nvmlDeviceGetComputeRunningProcesses_v3", status=code, times=faults.ALWAYS)
    world.apply(WHOLE)

    world.settle()

    assert world.found() == ("WaitingForRelease", "UseUnknown")
    assert world.advertised() == {}
    remedy = "driver 510 or newer" if code is Status.FUNCTION_NOT_FOUND else ""
    assert remedy in world.gpu_status()["message"]
    if code is Status.NOT_SUPPORTED:
        assert "install a driver under which nvidia-smi lists processes" in world.gpu_status()["message"]


def test_an_index_without_mig_device_may_be_an_invalid_argument(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As go-nvlib and NVIDIA's DRA driver take it."""
    world = make_world(cut(("3g.40gb", 4)))
    real = NVML.nvmlDeviceGetMigDeviceHandleByIndex

    def by_index(handle: Any, index: int) -> Any:
        try:
            return real(handle, (index + 1) % 7)
        except NVML.NVMLError_NotFound as error:
            raise NVML.NVMLError_InvalidArgument from error

    monkeypatch.setattr(NVML, "nvmlDeviceGetMigDeviceHandleByIndex", by_index)
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle()

    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize(
    "symbol", ["nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV"]
)
def test_a_least_version_is_named_to_a_driver_that_lacks_a_function(make_world: MakeWorld, symbol: str) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    faults.inject(world.machine, symbol, status=Status.FUNCTION_NOT_FOUND, times=faults.ALWAYS)
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle()

    assert "install driver 510 or newer" in world.gpu_status()["message"]


def test_a_least_version_is_named_where_the_library_lacks_the_function(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    monkeypatch.setattr(NVML, "nvmlDeviceGetName", lacks)
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle()

    assert "install driver 510 or newer" in world.gpu_status()["message"]


def test_a_process_that_only_draws_keeps_a_gpu_from_being_given_away(make_world: MakeWorld) -> None:
    world = make_world((T4, {}), (H100, {}))
    processes.attach(world.machine, world.gpu().uuid, 77, 100, graphics=True)
    world.apply(WHOLE, {"index": 1, "whole": {}})

    world.settle()

    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "process 77 runs on it" in world.gpu_status()["message"]
    assert world.advertised() == {"nvidia.com/gpu": 1}

    processes.detach(world.machine, 77)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def test_a_driver_without_lists_of_processes_that_draw_counts_the_others(make_world: MakeWorld) -> None:
    world = make_world(plain())
    faults.inject(
        world.machine,
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        status=Status.NOT_SUPPORTED,
        times=faults.ALWAYS,
    )
    world.apply(WHOLE)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def served(world: World) -> dict[str, list[Any]]:
    return {model["name"]: profiles_of(model.get("profiles", "")) for model in world.status()["models"]}


def test_the_model_in_the_status_has_the_profiles_of_whichever_gpu_reports_them(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers up to 535 name none while the MIG mode of a GPU is off."""
    world = make_world(plain(), cut())
    real = NVML.nvmlDeviceGetGpuInstanceProfileInfo

    def profiles(handle: Any, *arguments: Any) -> Any:
        if not NVML.nvmlDeviceGetMigMode(handle)[0]:
            raise NVML.NVMLError_NotSupported
        return real(handle, *arguments)

    monkeypatch.setattr(NVML, "nvmlDeviceGetGpuInstanceProfileInfo", profiles)
    world.apply()

    world.settle()

    assert {name: len(found) > 0 for name, found in served(world).items()} == {"NVIDIA H100 80GB HBM3": True}
