"""Configs of NVIDIA's device plugin: what the plugin refuses is refused here first, with the field."""

import pytest

from cli.nvidia_config import LARGEST, PluginSharing, read

ENTRY = "sharing: {{mps: {{resources: [{{name: gpu, {}}}]}}}}"
FIRST = "sharing.mps.resources[0]"

# What makes k8s-device-plugin 0.20 end, by its parser and its validation of flags.
REFUSED = {
    "version: v2": "version: ",
    "sharing: {mps: {}}": "sharing.mps.resources: is missing",
    "sharing: {timeSlicing: {}}": "sharing.timeSlicing.resources: is missing",
    "sharing: {timeSlicing: null}": "sharing.timeSlicing.resources: is missing",
    "sharing: {mps: {resources: []}}": "sharing.mps.resources: list should have at least 1 item",
    "sharing: {mps: {resources: [{replicas: 4}]}}": f"{FIRST}.name: is missing",
    "sharing: {mps: {resources: [{name: gpu}]}}": f"{FIRST}.replicas: is missing",
    ENTRY.format("replicas: 1"): f"{FIRST}: replicas is 1: sharing begins at 2",
    ENTRY.format("replicas: 0"): f"{FIRST}: replicas is 0",
    ENTRY.format("replicas: -1"): f"{FIRST}: replicas is -1",
    ENTRY.format("replicas: '4'"): f"{FIRST}.replicas: ",
    ENTRY.format("replicas: 4.5"): f"{FIRST}.replicas: ",
    f"sharing: {{mps: {{resources: [{{name: {'x' * 60}, replicas: 4}}]}}}}": f"{FIRST}.name: nvidia.com/xxx",
    "sharing: {mps: {resources: [{name: amd.com/x, replicas: 4}]}}": f"{FIRST}.name: 'amd.com/x' is no resource",
    "sharing: {mps: {resources: [{name: GPU, replicas: 4}]}}": f"{FIRST}.name: 'GPU' is no resource",
    "sharing: {mps: {resources: [{name: mig-1g.10gb+me, replicas: 4}]}}": f"{FIRST}.name: 'mig-1g.10gb+me' is no",
    ENTRY.format("replicas: 4, devices: some"): f"{FIRST}.devices: is 'some': write all, a count",
    ENTRY.format("replicas: 4, devices: 0"): f"{FIRST}.devices: is 0",
    ENTRY.format("replicas: 4, devices: [{}]"): f"{FIRST}.devices: is [{{}}]: write all",
    ENTRY.format("replicas: 4, devices: {a: 1}"): f"{FIRST}.devices: is {{'a': 1}}: write all",
    ENTRY.format("replicas: 4, devices: [first]"): f"{FIRST}.devices: is ['first']: write all",
    ENTRY.format("replicas: 4, devices: [-1]"): f"{FIRST}.devices: is [-1]: write all",
    ENTRY.format("replicas: 4, rename: ''"): f"{FIRST}.rename: '' is no resource",
    ENTRY.format("replicas: 4, rename: gpu..x"): f"{FIRST}.rename: 'gpu..x' is no resource",
    ENTRY.format("Replicas: 4"): f"{FIRST}.replicas: is missing (the case of letters counts here)",
    "Sharing: {MPS: {Resources: [{name: gpu, replicas: 4}]}}": "sharing.mps.resources: is missing (the case",
    "sharing: {TIMESLICING: null}": "sharing.timeSlicing.resources: is missing",
    "FLAGS: {MIGStrategy: both}": "flags.migStrategy: ",
    "resources: {gpus: [{name: x}]}": "resources.gpus[0].pattern: is missing",
    "flags: {plugin: {deviceListStrategy: by-post}}": "flags.plugin.deviceListStrategy[0]: ",
    "flags: {plugin: {deviceIDStrategy: name}}": "flags.plugin.deviceIDStrategy: ",
    "flags: {plugin: {sharedDevicesAllocationPolicy: fair}}": "flags.plugin.sharedDevicesAllocationPolicy: ",
    "flags: {deviceDiscoveryStrategy: guess}": "flags.deviceDiscoveryStrategy: ",
    "flags: {migStrategy: both}": "flags.migStrategy: ",
    "flags: {migStrategy: mixed}\n" + ENTRY.format("replicas: 4"): "(the document): flags.migStrategy mixed",
    "sharing: []": "sharing: Input should be a valid dictionary",
    "[1, 2]": "(the document): is no config of the device plugin, which is a mapping",
    "a: [": "(the document): is not valid YAML",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_plugin_refuses_is_named_with_its_field(text: str) -> None:
    found = read(text)
    assert isinstance(found, tuple)
    assert found[0].startswith(REFUSED[text])


def test_a_list_with_a_wrong_entry_is_not_called_empty() -> None:
    found = read(ENTRY.format("replicas: none, devices: none"))
    assert isinstance(found, tuple)
    assert [line.split(": ")[0] for line in found] == [f"{FIRST}.replicas", f"{FIRST}.devices"]


@pytest.mark.parametrize("written", ["replicas: 4", "replicas: 4.0", "replicas: 4, memoryGB: 3.0"])
@pytest.mark.parametrize("rename", ["", "renameByDefault: null, ", "renameByDefault: false, "])
def test_what_the_plugin_reads_as_a_whole_number_or_as_not_given_is_read_so(written: str, rename: str) -> None:
    """Its library makes JSON of the file first: there 4.0 is 4. And of null Go's decoder reads the zero value."""
    found = read(f"sharing: {{mps: {{{rename}resources: [{{name: gpu, {written}}}]}}}}")
    assert isinstance(found, PluginSharing)
    assert found.mps is not None
    assert [one.replicas for one in found.mps.resources] == [4]
    assert [type(one.replicas) for one in found.mps.resources] == [int]
    assert not found.mps.rename_by_default


def test_a_text_that_is_far_longer_than_any_config_is_not_parsed() -> None:
    """A dump has what any tenant wrote, and YAML is read slowly."""
    assert read("a: 1\n" + "#" * LARGEST) == ("(the document): has more than 65,536 characters",)


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("sharing: {timeslicing: {resources: [{name: gpu, replicas: 4}]}}", 4),
        ("SHARING: {TimeSlicing: {resources: [{name: gpu, replicas: 4}]}}", 4),
        (
            "Version: v1\nFlags: {MigStrategy: none, GdsEnabled: true}\n"
            "Sharing: {MPS: {resources: [{name: gpu, replicas: 4}]}}",
            4,
        ),
        ("sharing: {MPS: {resources: [{name: gpu, replicas: 4}]}, mps: {resources: [{name: gpu, replicas: 8}]}}", 8),
    ],
)
def test_a_key_in_another_case_of_letters_is_taken_where_the_plugin_takes_it(text: str, shared: int) -> None:
    """Go's decoder does, where the plugin has none of its own; of two the last in their order."""
    found = read(text)
    assert isinstance(found, PluginSharing)
    block = found.mps or found.time_slicing
    assert block is not None
    assert [one.replicas for one in block.resources] == [shared]
    assert found.remarks == ()


@pytest.mark.parametrize(
    "text", ["", "version: v1", "version: v1\nsharing: {mps: null}", "version: ''", "resources: {gpus: null}"]
)
def test_a_config_that_shares_nothing(text: str) -> None:
    assert read(text) == PluginSharing(mps=None, time_slicing=None, remarks=())


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (ENTRY.format("replicas: 4, memoryGb: 3"), f"{FIRST}.memoryGb: unknown to the device plugin, which ignores it"),
        (
            "sharing: {mps: {renamebydefault: true, resources: [{name: gpu, replicas: 4}]}}",
            "sharing.mps.renamebydefault: unknown to the device plugin, which ignores it",
        ),
        ("TimeSlicing: {}", "TimeSlicing: unknown to the device plugin, which ignores it: write it under sharing"),
        ("version: v1\nflagz: {}", "flagz: unknown to the device plugin, which ignores it"),
        (ENTRY.format("replicas: 4, devices: 2"), f"{FIRST}.devices: ignored, all devices are shared"),
        ("resources: {gpus: [{name: a, pattern: b}]}", "resources: the device plugin ignores this section"),
        (
            "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}, "
            "timeSlicing: {resources: [{name: gpu, replicas: 3}]}}",
            "sharing.timeSlicing: ignored, since sharing.mps is there too",
        ),
    ],
)
def test_what_the_plugin_drops_without_a_word_is_remarked_on(text: str, remark: str) -> None:
    found = read(text)
    assert isinstance(found, PluginSharing)
    assert found.remarks == (remark,)
