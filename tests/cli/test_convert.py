"""`gpuplan import`: configs of NVIDIA's device plugin to plans."""

import io
import re
from collections.abc import Mapping

import pytest
import yaml

from cli.__main__ import main
from partitioning.nvidia_plugin import CONFIG_LABEL
from partitioning.resources import WHOLE
from tests.builders import objects
from tests.cli.configs import MPS_4, PRODUCT, Run, config_map, items, node


def test_each_node_gets_the_sharing_of_its_config(run: Run) -> None:
    eight = "version: v1\nsharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 8}]}}"
    nodes = [node("a", 1), node("b", 1, **{CONFIG_LABEL: "eight"}), node("c", 1, **{CONFIG_LABEL: "plain"})]
    code, plans, notes = run("import", [config_map(default=MPS_4, eight=eight, plain="version: v1"), *nodes])
    assert code == 0
    assert items(plans) == {
        "a": [{"index": 0, "mps": {"replicas": 4, "renameByDefault": False}}],
        "b": [{"index": 0, "mps": {"replicas": 8, "renameByDefault": True}}],
    }
    assert "c: config 'plain' shares nothing" in notes


def test_time_slicing_becomes_replicas_that_a_container_may_take_several_of(run: Run) -> None:
    text = "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}"
    code, plans, notes = run("import", [config_map(any=text), node()])
    mps = {"replicas": 3, "renameByDefault": False, "failRequestsGreaterThanOne": False}
    assert (code, items(plans)) == (0, {"n1": [{"index": 0, "mps": mps}, {"index": 1, "mps": mps}]})
    assert "memory and threads are limited" in notes


def test_slices_of_nebulys_fork(run: Run) -> None:
    text = """
      version: v1
      sharing: {mps: {resources: [
        {name: nvidia.com/gpu, rename: gpu-10gb, memoryGB: 10, replicas: 2, devices: ["0"]},
        {name: nvidia.com/gpu, rename: gpu-20gb, memoryGB: 20, replicas: 1, devices: [0]},
        {name: nvidia.com/gpu, rename: gpu-5gb, memoryGB: 5, replicas: 3, devices: [1]}]}}"""
    code, plans, _ = run("import", [config_map(any=text), node()])
    assert code == 0
    assert items(plans) == {
        "n1": [
            {"index": 0, "mps": {"slices": [{"memoryGB": 10, "count": 2}, {"memoryGB": 20, "count": 1}]}},
            {"index": 1, "mps": {"slices": [{"memoryGB": 5, "count": 3}]}},
        ]
    }


@pytest.mark.parametrize(
    ("text", "labels", "problem"),
    [
        ("version: v1\nsharing: {mps: {}}", {}, "gpu-operator/plugin-configs any: sharing.mps.resources: is missing"),
        (MPS_4, {CONFIG_LABEL: "gone"}, "no ConfigMap in the input has its config 'gone': known are any"),
        (MPS_4.replace("gpu,", "mig-1g.10gb,"), {}, "sharing of nvidia.com/mig-1g.10gb has no equal"),
        (MPS_4.replace("4", "99"), {}, "mps.replicas is 99, and MPS serves 48 clients"),
        (MPS_4, {"nvidia.com/gpu.count": "two"}, "its label nvidia.com/gpu.count is 'two'"),
    ],
)
def test_a_node_that_cannot_be_imported_is_named_and_the_others_are(
    run: Run, text: str, labels: Mapping[str, str], problem: str
) -> None:
    good = node("good", 1, **{CONFIG_LABEL: "fine"})
    code, plans, notes = run("import", [config_map(any=text, fine=MPS_4), node("bad", **labels), good], "--key", "any")
    assert code == 1
    assert list(items(plans)) == ["good"]
    assert f"gpuplan: bad: {problem}" in notes.replace("known are any, fine", "known are any")


def test_a_key_of_two_config_maps_is_not_guessed(run: Run) -> None:
    code, plans, notes = run("import", [config_map("one", any=MPS_4), config_map("two", any=MPS_4), node()])
    assert (code, plans) == (1, [])
    assert "config 'any' is in gpu-operator/one and in gpu-operator/two" in notes


SHARED_4 = "sharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}"
REAL_FLAGS = """
  flags:
    migStrategy: none
    failOnInitError: true
    nvidiaDriverRoot: /run/nvidia/driver
    gdsEnabled: false
    useNodeFeatureAPI: false
    plugin: {passDeviceSpecs: true, deviceListStrategy: [envvar], nvidiaCTKPath: /usr/bin/nvidia-ctk}
    gfd: {oneshot: false, sleepInterval: 60s}
  sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"""


def test_a_config_without_a_version_is_one(run: Run) -> None:
    code, plans, notes = run("import", [config_map(any=REAL_FLAGS), node()])
    assert (code, len(items(plans)["n1"])) == (0, 2)
    assert "unknown to the device plugin" not in notes


OF_THE_GPU_OPERATORS_DOCS = """
version: v1
flags: {migStrategy: mixed}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 8}, {name: nvidia.com/mig-1g.5gb, replicas: 2}]}}
"""


def test_entries_for_mig_instances_match_nothing_on_a_node_without_any(run: Run) -> None:
    code, plans, notes = run("import", [config_map(any=OF_THE_GPU_OPERATORS_DOCS), node(count=1)])
    assert [item["mps"]["replicas"] for item in items(plans)["n1"]] == [8]
    assert (code, "mig-1g.5gb" in notes) == (0, False)


@pytest.mark.parametrize(
    ("label", "code"), [("nvidia.com/mig-1g.5gb.count", 1), ("nvidia.com/mig-1g.10gb.me.count", 1), ("none", 0)]
)
def test_on_a_mixed_node_it_is_not_known_which_gpus_are_cut(run: Run, label: str, code: int) -> None:
    """Its label counts the GPUs in MIG mode as well, and a plan names GPUs by their index."""
    mixed = node(count=2, **{"nvidia.com/mig.strategy": "mixed", label: "7"})
    found, plans, notes = run("import", [config_map(any=OF_THE_GPU_OPERATORS_DOCS), mixed])
    assert (found, len(plans)) == (code, 1 - code)
    assert ("some of its GPUs are cut into MIG instances, and which ones is not known" in notes) is bool(code)


@pytest.mark.parametrize(("major", "noted"), [("6", True), ("7", False), ("10", False)])
def test_what_replicas_need_before_volta_is_noted(run: Run, major: str, noted: bool) -> None:
    old = node(**{"nvidia.com/gpu.product": "Tesla-P4", "nvidia.com/gpu.compute.major": major})
    code, _, notes = run("import", [config_map(any=MPS_4), old])
    assert (code, "n1: before Volta the agent makes replicas only with mpsReplicasBeforeVolta" in notes) == (0, noted)


def test_another_name_for_the_resource_is_dropped_as_the_plugin_does(run: Run) -> None:
    text = "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, rename: gpu-shared, replicas: 4}]}}"
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": {WHOLE: "8"}}}
    code, plans, notes = run("import", [config_map(any=text), bare])
    assert (code, len(items(plans)["n1"])) == (0, 2)
    assert "sharing.timeSlicing.resources[0].rename: ignored" in notes


def test_a_section_that_the_plugin_does_not_know_makes_it_no_other_file(run: Run) -> None:
    code, plans, notes = run("import", [config_map(any=f"{MPS_4}\nhealth: {{disabled: false}}"), node()])
    assert (code, list(items(plans))) == (0, ["n1"])
    assert "health: unknown to the device plugin" in notes


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ("7" * 4000, "a number that 64 bits do not hold .*line 1"),
        (".nan", "a number that 64 bits do not hold .*line 1"),
        ("-.inf", "a number that 64 bits do not hold .*line 1"),
        ("4]", "is not valid YAML"),
        ("4}]}}}\n---\n{sharing: {mps: {resources: [{name: gpu, replicas: 4", "has 2 documents: one is needed"),
        ("4, x: " + "[" * 99 + "]" * 99, "is nested deeper than 100 levels"),
        ("4, x: " + "y" * (1 << 16), "has more than 65,536 characters"),
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("key", ["default", "config.yaml"])
def test_a_config_that_cannot_be_read_is_named_with_what_is_wrong(
    run: Run, key: str, replicas: str, problem: str
) -> None:
    """It was passed over: there was no config, the person read."""
    text = f"{{sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {replicas}}}]}}}}}}"
    code, _, notes = run("import", [config_map(**{key: text}), node()])
    assert code == 1
    assert re.search(rf"gpu-operator/\S+ {key}: .*{problem}", notes), notes


def test_a_config_of_another_version_is_named(run: Run) -> None:
    code, _, notes = run("import", [config_map(default=MPS_4.replace("v1", "v2")), node()])
    assert (code, "default: version: " in notes) == (1, True)


def test_an_unreadable_config_of_another_key_makes_the_only_one_no_other(run: Run) -> None:
    code, plans, notes = run("import", [config_map(any=MPS_4, other=f"{MPS_4}\n["), node()])
    assert (code, list(items(plans))) == (0, ["n1"])
    assert "other: is not valid YAML" in notes


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "the input has no config of NVIDIA's device plugin for it: give the ConfigMap that holds it"),
        (
            ["--config-map", "gpu-operator/others"],
            "the input has no config of NVIDIA's device plugin for it: give the ConfigMap gpu-operator/others",
        ),
        (["--key", "b"], "no ConfigMap in the input has its config 'b': known are a, c; choose one with --key"),
    ],
)
def test_a_config_that_is_not_there_is_asked_for(run: Run, given: list[str], sentence: str) -> None:
    maps = [config_map(a=MPS_4, c=MPS_4)] if given else []
    code, _, notes = run("import", [*maps, node()], *given)
    assert code == 1
    assert f"n1: {sentence}" in notes


def test_of_several_configs_none_is_chosen(run: Run) -> None:
    _, _, notes = run("import", [config_map(a=MPS_4, c=MPS_4), node()])
    assert "n1: its config is not known: there are a, c; choose one with --key" in notes


@pytest.mark.parametrize(
    ("text", "capacity", "gpus"),
    [
        (MPS_4, {"nvidia.com/gpu": "8"}, 2),
        (SHARED_4, {"nvidia.com/gpu.shared": "12", "nvidia.com/gpu": "0"}, 3),
        (MPS_4, {"nvidia.com/gpu": "7"}, 0),
        (MPS_4, {"nvidia.com/gpu": "0"}, 0),
        (MPS_4, {"nvidia.com/gpu": "400"}, 0),
        (MPS_4, {"nvidia.com/gpu.shared": "8"}, 0),
    ],
)
def test_without_gpu_feature_discovery_the_capacity_tells(
    run: Run, text: str, capacity: dict[str, str], gpus: int
) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"capacity": capacity}}
    code, plans, notes = run("import", [config_map(any=text), bare])
    assert len(items(plans).get("n1", ())) == gpus
    assert code == (0 if gpus else 1)
    assert gpus or "n1: " in notes


def test_nodes_without_gpus_are_an_error_and_no_plan(run: Run) -> None:
    without_gpus = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    code, plans, notes = run("import", [config_map(any=MPS_4), without_gpus])
    assert (code, plans) == (1, [])
    assert "no Node with the label nvidia.com/gpu.count" in notes


@pytest.mark.parametrize("profile", ["1g.5gb", "1g.10gb-SHARED", "INVALID"])
def test_labels_of_mig_devices_are_not_those_of_gpus(run: Run, profile: str) -> None:
    labels = {
        "nvidia.com/gpu.product": f"NVIDIA-A100-SXM4-40GB-MIG-{profile}",
        "nvidia.com/mig.strategy": "single",
    }
    count = 0 if profile == "INVALID" else 14
    code, plans, notes = run("import", [config_map(any=MPS_4), node(count=count, **labels)])
    assert (code, plans) == (1, [])
    assert "its labels count MIG instances" in notes


def test_a_number_of_gpus_beyond_any_node_is_refused(run: Run) -> None:
    code, plans, notes = run("import", [config_map(any=MPS_4), node(count="99999999999")])
    assert (code, plans) == (1, [])
    assert "no number of GPUs from 1 to 16" in notes


def test_what_is_printed_repeats_itself_and_has_no_anchors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump_all([config_map(any=MPS_4), node(count=3)])))
    assert main(["import", "-f", "-"]) == 0
    assert not {"&", "*"} & set(capsys.readouterr().out)


def test_the_config_map_of_the_plugin_can_be_named(run: Run) -> None:
    stranger = objects.config_map("strange", {"default": "version: v1"}, namespace="tenant")
    both = [stranger, config_map(default=MPS_4), node()]
    code, plans, notes = run("import", both)
    assert (code, plans) == (1, [])
    assert "with --config-map" in notes
    code, plans, _ = run("import", both, "--config-map", "gpu-operator/plugin-configs")
    assert (code, list(items(plans))) == (0, ["n1"])


def test_the_only_config_is_not_that_of_another_node(run: Run) -> None:
    nodes = [node("a", **{CONFIG_LABEL: "eight"}), node("b")]
    code, plans, notes = run("import", [config_map(eight=MPS_4, plain="version: v1"), *nodes])
    assert (code, list(items(plans))) == (1, ["a"])
    assert "b: its config is not known: there are eight, plain; choose one with --key" in notes


def test_objects_of_a_builder_are_read(run: Run) -> None:
    """A Node as an API server holds it."""
    raw = objects.node("n9", labels={**PRODUCT, "nvidia.com/gpu.count": "1"})
    assert run("import", [config_map(any=MPS_4), raw])[0] == 0
