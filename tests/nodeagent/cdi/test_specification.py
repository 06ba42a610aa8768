"""The CDI specification: what each kind of device puts into a container, and what is refused without a number."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from nodeagent.cdi.device_numbers import DeviceNumbers, read_device_numbers
from nodeagent.cdi.driver_files import DriverFiles, driver_files
from nodeagent.cdi.specification import Specification, common_edits, device_edits, newer_version
from nodeagent.handover.cdi import FILE_NAME
from nodeagent.handover.config import Device, DeviceKind
from nodeagent.hardware.driver import ObservedGpu
from sandbox import cdi as runtime
from sandbox.driver import toolkit
from tests.builders.observed import instance

SCHEMAS = Path(__file__).parent / "schema"
MPS_ROOT = Path("/run/gpuplan/mps")
NUMBERS = DeviceNumbers(
    majors={"nvidia": 195, "nvidia-uvm": 510, "nvidia-caps": 511},
    capabilities={(2, 9, None): 354, (2, 9, 0): 355},
)
GPU = ObservedGpu(index=0, uuid="GPU-1", minor=2, instances=(instance(start=2, number=9, uuid="MIG-a"),))
MIG = Device(id="MIG-a", resource="nvidia.com/mig-1g.10gb", gpu="GPU-1", kind=DeviceKind.MIG)
WHOLE = Device(id="GPU-1", resource="nvidia.com/gpu", gpu="GPU-1", kind=DeviceKind.WHOLE)
SLICE = Device(
    id="GPU-1::10gb::1",
    resource="nvidia.com/gpu-10gb",
    gpu="GPU-1",
    kind=DeviceKind.MPS,
    memory_mib=9536,
    thread_percent=25,
)
LIBCUDA = {"hostPath": "/run/nvidia/driver/usr/lib/libcuda.so.580.1.2", "containerPath": "/usr/lib/libcuda.so.580.1.2"}
FILES = {
    "env": ["A=b", "NVIDIA_VISIBLE_DEVICES=all"],
    "mounts": [LIBCUDA],
    "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/other", "type": "c", "major": 9, "minor": 1}],
    "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "x"]}],
}


def device_node(path: str, major: int, minor: int) -> dict[str, object]:
    return {"path": path, "type": "c", "major": major, "minor": minor, "permissions": "rw"}


def specification(*devices: Device) -> Specification:
    entries = {}
    for device in devices:
        edits = device_edits(device, GPU, NUMBERS, MPS_ROOT)
        assert not isinstance(edits, str), edits
        entries[device.id] = edits
    return Specification(version="0.5.0", common=common_edits(FILES, NUMBERS), devices=entries)


def test_mig_device_has_the_nodes_of_its_gpu_and_of_both_its_instances() -> None:
    assert device_edits(MIG, GPU, NUMBERS, None) == {
        "deviceNodes": [
            device_node("/dev/nvidia2", 195, 2),
            device_node("/dev/nvidia-caps/nvidia-cap354", 511, 354),
            device_node("/dev/nvidia-caps/nvidia-cap355", 511, 355),
        ]
    }


def test_whole_gpu_has_its_own_node_only() -> None:
    assert device_edits(WHOLE, GPU, NUMBERS, None) == {"deviceNodes": [device_node("/dev/nvidia2", 195, 2)]}


def test_mps_slice_has_its_gpu_its_limits_and_its_daemons_directory() -> None:
    edits = device_edits(SLICE, GPU, NUMBERS, MPS_ROOT)
    assert not isinstance(edits, str)
    assert edits["deviceNodes"] == [device_node("/dev/nvidia2", 195, 2)]
    assert edits["env"] == [
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=9536M",
        "CUDA_MPS_PIPE_DIRECTORY=/run/gpuplan/mps/GPU-1/pipe",
    ]
    (mount,) = edits["mounts"]
    assert (mount["hostPath"], mount["containerPath"]) == ("/run/gpuplan/mps/GPU-1/pipe",) * 2
    assert "ro" in mount["options"], "root in a container could fill the node's /run"
    writable = device_edits(SLICE, GPU, NUMBERS, MPS_ROOT, read_only_pipes=False)
    assert not isinstance(writable, str)
    assert "rw" in writable["mounts"][0]["options"]


def test_mergeable_slice_leaves_its_limits_to_the_answer() -> None:
    edits = device_edits(replace(SLICE, mergeable=True), GPU, NUMBERS, MPS_ROOT)
    assert not isinstance(edits, str)
    assert edits["env"] == ["CUDA_MPS_PIPE_DIRECTORY=/run/gpuplan/mps/GPU-1/pipe"]


def test_common_edits_name_control_nodes_by_number_and_keep_nvidias_runtime_out() -> None:
    edits = common_edits(FILES, NUMBERS)
    assert edits["env"] == ["A=b", "NVIDIA_VISIBLE_DEVICES=void"]
    assert edits["mounts"] == [LIBCUDA]
    assert edits["hooks"] == FILES["hooks"]
    assert edits["deviceNodes"] == [
        {"path": "/dev/other", "type": "c", "major": 9, "minor": 1},
        device_node("/dev/nvidiactl", 195, 255),
        device_node("/dev/nvidia-modeset", 195, 254),
        device_node("/dev/nvidia-uvm", 510, 0),
        device_node("/dev/nvidia-uvm-tools", 510, 1),
    ]
    assert common_edits(edits, NUMBERS) == edits


def test_document_holds_against_the_schema_and_the_runtimes_own_rules(tmp_path: Path) -> None:
    schema = json.loads((SCHEMAS / "schema.json").read_text())
    definitions = Resource.from_contents(
        json.loads((SCHEMAS / "defs.json").read_text()) | {"$schema": schema["$schema"]}
    )
    validator = Draft7Validator(schema, registry=Registry().with_resource("defs.json", definitions))
    found = specification(MIG, WHOLE, SLICE)
    validator.validate(json.loads(found.text()))
    broken = json.loads(found.text())
    broken["devices"][0]["containerEdits"]["deviceNodes"][0]["major"] = "195"
    assert not validator.is_valid(broken)
    path = tmp_path / FILE_NAME
    path.write_bytes(found.text())
    runtime.load(path)


def test_two_devices_of_one_container_add_up(tmp_path: Path) -> None:
    other = ObservedGpu(index=1, uuid="GPU-2", minor=7)
    whole = Device(id="GPU-2", resource="nvidia.com/gpu", gpu="GPU-2", kind=DeviceKind.WHOLE)
    edits = device_edits(whole, other, NUMBERS, None)
    assert not isinstance(edits, str)
    both = Specification(
        version="0.5.0", common=common_edits({}, NUMBERS), devices={**specification(MIG).devices, "GPU-2": edits}
    )
    (tmp_path / FILE_NAME).write_bytes(both.text())
    got = runtime.inject([tmp_path], ["gpuplan.dev/gpu=MIG-a", "gpuplan.dev/gpu=GPU-2"])
    paths = [found.path for found in got.nodes if found.path not in ("/dev/nvidiactl",) and "uvm" not in found.path]
    assert sorted(paths) == [
        "/dev/nvidia-caps/nvidia-cap354",
        "/dev/nvidia-caps/nvidia-cap355",
        "/dev/nvidia-modeset",
        "/dev/nvidia2",
        "/dev/nvidia7",
    ]
    assert got.env == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_equal_devices_in_another_order_are_the_same_file() -> None:
    assert specification(MIG, SLICE, WHOLE).text() == specification(WHOLE, MIG, SLICE).text()


CAPABILITIES_OF_ONE_ONLY = DeviceNumbers(majors=NUMBERS.majors, capabilities={(2, 9, None): 354})
NOT_SEEN = DeviceNumbers(majors=NUMBERS.majors, problem="the agent does not see the driver's capability files in /x")


@pytest.mark.parametrize(
    ("device", "gpu", "numbers", "mps_root", "reason"),
    [
        (WHOLE, GPU, DeviceNumbers(), None, "the kernel lists no device nvidia in /proc/devices"),
        (WHOLE, GPU, DeviceNumbers(problem="/proc/devices cannot be read"), None, "/proc/devices cannot be read"),
        (WHOLE, GPU, DeviceNumbers(majors={"nvidia": 195}), None, "nvidia-uvm is not loaded"),
        (WHOLE, ObservedGpu(index=3, uuid="GPU-1"), NUMBERS, None, "the device number of GPU 3"),
        (MIG, ObservedGpu(index=0, uuid="GPU-1", minor=2), NUMBERS, None, "no MIG device MIG-a on GPU 0"),
        (MIG, GPU, CAPABILITIES_OF_ONE_ONLY, None, "GPU instance 9, compute instance 0 of GPU 0"),
        (MIG, GPU, DeviceNumbers(majors=NUMBERS.majors), None, "no capability file for GPU instance 9 of GPU 0"),
        (MIG, GPU, NOT_SEEN, None, "does not see the driver's capability files"),
        (SLICE, GPU, NUMBERS, None, "where its MPS control daemons are"),
    ],
)
def test_what_is_not_known_is_refused_with_the_reason(
    device: Device, gpu: ObservedGpu, numbers: DeviceNumbers, mps_root: Path | None, reason: str
) -> None:
    found = device_edits(device, gpu, numbers, mps_root)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize(
    ("one", "other", "newer"), [("0.5.0", "0.10.0", "0.10.0"), ("1.0.0", "0.7.0", "1.0.0"), ("0.5.0", "0.5.0", "0.5.0")]
)
def test_newest_version_in_use_is_stated(one: str, other: str, newer: str) -> None:
    assert newer_version(one, other) == newer


PROC_DEVICES = "Character devices:\n  1 mem\n{}\n\nBlock devices:\n  8 sd\n511 nvidia-caps\n"


def test_numbers_are_read_from_the_drivers_files(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text(PROC_DEVICES.format("195 nvidia-frontend\n234 nvidia-uvm"))
    for where, minor in (("gpu0/mig/gi1", 12), ("gpu0/mig/gi1/ci0", 13), ("gpu11/mig/gi14/ci7", 1622), ("mig", 1)):
        folder = tmp_path / "driver/nvidia/capabilities" / where
        folder.mkdir(parents=True)
        (folder / "access").write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    found = read_device_numbers(tmp_path)
    assert found.problem == ""
    assert (found.major("nvidia"), found.major("nvidia-uvm"), found.major("nvidia-caps")) == (195, 234, None)
    assert found.capabilities == {(0, 1, None): 12, (0, 1, 0): 13, (11, 14, 7): 1622}


def test_folders_that_are_not_there_are_a_problem(tmp_path: Path) -> None:
    assert "devices cannot be read" in read_device_numbers(tmp_path).problem
    (tmp_path / "devices").write_text(PROC_DEVICES.format("195 nvidia"))
    found = read_device_numbers(tmp_path)
    assert "does not see the driver's capability files" in found.problem
    assert found.major("nvidia") == 195


def test_access_file_without_a_minor_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text(PROC_DEVICES.format("195 nvidia"))
    folder = tmp_path / "driver/nvidia/capabilities/gpu0/mig/gi1"
    folder.mkdir(parents=True)
    (folder / "access").write_text("")
    found = read_device_numbers(tmp_path)
    assert "names no DeviceFileMinor" in found.problems[0]
    assert found.problem == ""


def management(version: str, kind: str = "management.nvidia.com/gpu") -> dict[str, object]:
    library = {"hostPath": f"/d/libcuda.so.{version}", "containerPath": "/libcuda.so"}
    return {"cdiVersion": "0.7.0", "kind": kind, "devices": [], "containerEdits": {"mounts": [library]}}


def test_files_of_the_running_driver_are_taken_and_the_kind_for_workloads_is_preferred() -> None:
    found = driver_files({"/a": management("1.2"), "/b": management("1.2", "nvidia.com/gpu")}, "1.2")
    assert isinstance(found, DriverFiles)
    assert (found.source, found.version) == ("/b", "0.7.0")
    renewed = driver_files({"/a": management("1.3"), "/b": management("1.2", "nvidia.com/gpu")}, "1.3")
    assert isinstance(renewed, DriverFiles)
    assert renewed.source == "/a"


def commands(documents: dict[str, object], version: str = "580.1.2") -> list[list[str]]:
    """The hooks that containers get, without their options."""
    found = driver_files(documents, version)
    assert isinstance(found, DriverFiles)
    return [hook["args"][:3] for hook in common_edits(found.edits, NUMBERS)["hooks"]]


def test_the_hook_that_a_management_specification_lacks_is_added_as_its_others_are_called() -> None:
    """NVIDIA leaves it out there: the driver could make nodes of other GPUs in our containers."""
    document = toolkit.document("/d", "580.1.2", (0,))
    found = driver_files({"/a": document}, "580.1.2")
    assert isinstance(found, DriverFiles)
    given, added = document["containerEdits"]["hooks"], common_edits(found.edits, NUMBERS)["hooks"]
    assert added[:-1] == given
    assert added[-1] == {**given[-1], "args": ["nvidia-cdi-hook", "disable-device-node-modification"]}
    assert commands({"/a": {**document, "containerEdits": found.edits}}) == commands({"/a": document}), "once"


def test_hooks_of_the_older_program_have_its_arguments() -> None:
    document = toolkit.document("/d", "580.1.2", (0,))
    for hook in document["containerEdits"]["hooks"]:
        hook.update(path="/usr/bin/nvidia-ctk", args=["nvidia-ctk", "hook", *hook["args"][1:]])
    assert commands({"/a": document})[-1] == ["nvidia-ctk", "hook", "disable-device-node-modification"]


def test_the_hook_is_not_added_where_the_toolkit_may_not_know_it_or_leaves_it_out_by_request() -> None:
    """An unknown command ends the start of each container."""
    by_hand = {**toolkit.document("/d", "580.1.2", (0,)), "kind": "nvidia.com/gpu"}
    before = toolkit.document("/d", "580.1.2", (0,))
    chmod = {**before["containerEdits"]["hooks"][0], "args": ["nvidia-cdi-hook", "chmod", "--mode", "755"]}
    before["devices"][0]["containerEdits"]["hooks"] = [chmod]  # by default up to 1.17
    none = toolkit.document("/d", "580.1.2", (0,))
    del none["containerEdits"]["hooks"]
    for document in (by_hand, before):
        assert all("disable-device-node-modification" not in args for args in commands({"/a": document}))
    found = driver_files({"/a": none}, "580.1.2")
    assert isinstance(found, DriverFiles)
    assert "hooks" not in found.edits


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ({}, "no CDI specification of nvidia.com/gpu or management.nvidia.com/gpu is on this node"),
        ({"/a": management("1.2")}, "/a is for driver 1.2"),
        ({"/a": management("1.2", "k8s.device-plugin.nvidia.com/gpu")}, "no CDI specification"),
        ({"/a": {**management("1.3"), "containerEdits": {}}}, "/a names no libcuda.so"),
        ({"/a": {**management("1.3"), "cdiVersion": "new"}}, "/a cannot be used"),
        ({"/a": {**management("1.3"), "containerEdits": []}}, "/a cannot be used"),
        ({"/a": {**management("1.3"), "containerEdits": {"mounts": ["/libcuda.so.1.3"]}}}, "/a cannot be used"),
        ({"/a": {**management("1.3"), "containerEdits": {"env": {"A": 1}}}}, "/a cannot be used"),
        ({"/a": {**management("1.3"), "containerEdits": {"deviceNodes": [{"hostPath": "/dev/x"}]}}}, "cannot be used"),
        ({"/a": "half a fi"}, "no CDI specification"),
    ],
)
def test_files_of_no_other_driver_are_taken(documents: dict[str, object], reason: str) -> None:
    found = driver_files(documents, "1.3")
    assert isinstance(found, str)
    assert reason in found
    assert "nvidia-ctk cdi generate" in found
