"""`gpuplan import` where files of other software, or ConfigMaps of strangers, are in the input."""

from pathlib import Path

import pytest

from cli.__main__ import main
from cli.nvidia_config import LARGEST
from kube.yaml_text import read_yaml
from partitioning.nvidia_plugin import CONFIG_LABEL
from tests.builders import objects
from tests.cli.configs import MPS_4, Run, config_map, items, node
from tests.drawn import cells

MIG_PARTED = "version: v1\nmig-configs: {all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]}"
GEOMETRIES = "- models: [A30]\n  allowedGeometries:\n  - 1g.6gb: 4"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            MIG_PARTED,
            "a config of mig-parted, which needs no import: instances stay as they are, and spec.gpus holds on",
        ),
        (
            GEOMETRIES,
            "geometries of nos, which are no plan: they go into the controller's setting knownMigGeometriesFile",
        ),
        (
            "kind: GpuPartitionerConfig\nbatchWindowIdleSeconds: 10",
            "a config of nos, which is no plan: its settings are",
        ),
    ],
    ids=["mig-parted", "geometries", "nos"],
)
def test_a_file_of_other_software_is_named_with_what_to_do(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, sentence: str
) -> None:
    code, plans, notes = run("import", [config_map("other", **{"config.yaml": text}), node()])
    assert (code, plans) == (1, [])
    assert f"gpuplan: gpu-operator/other config.yaml: {sentence}" in notes

    (tmp_path / "config.yaml").write_text(text)
    assert main(["import", "-f", str(tmp_path / "config.yaml")]) != 0
    assert f": {sentence}" in capsys.readouterr().err


def test_a_bare_config_of_the_plugin_is_wanted_in_its_config_map(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(MPS_4)
    assert main(["import", "-f", str(tmp_path / "config.yaml")]) == 2
    assert (
        "a config of NVIDIA's device plugin: give the ConfigMap that holds it, and the Nodes" in capsys.readouterr().err
    )


STRANGE = {
    "a day that is none": "a: 2024-13-01",
    "digits": "7" * 4301,
    "brackets": "[" * 200_000 + "]" * 200_000,
    "a tag": "!!timestamp x",
    "aliases": "a: &a [*a]",
    "text": "hello",
}


@pytest.mark.parametrize(("what", "key"), cells(list(STRANGE), ["default", "other"]))
def test_no_config_map_of_a_stranger_stops_an_import(run: Run, what: str, key: str) -> None:
    stranger = objects.config_map("strange", {key: STRANGE[what]}, namespace="tenant")
    for mine, name in (({"default": MPS_4}, None), ({"mine": MPS_4}, "mine"), ({"mine": MPS_4}, None)):
        labels = {CONFIG_LABEL: name} if name else {}
        code, plans, _ = run("import", [stranger, config_map(**mine), node(**labels)])
        assert (code, list(items(plans))) == (0, ["n1"])


def test_config_maps_of_strangers_are_not_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers = [objects.config_map("strange", {"app.yaml": "version: v1"}, namespace=f"tenant-{n}") for n in range(3)]
    seen: list[str] = []

    def read_and_note(text: str, **limits: int) -> object:
        seen.append(text)
        assert limits == {"largest": LARGEST}
        return read_yaml(text, **limits)

    monkeypatch.setattr("cli.convert.read_yaml", read_and_note)
    assert run("import", [*strangers, config_map(default=MPS_4), node()])[0] == 0
    assert seen == [MPS_4]


@pytest.mark.parametrize("text", ["", "hello", "[1]", "a: [", "{app: {port: 80}}"])
def test_a_text_under_the_key_of_a_node_is_named_and_read_where_a_person_says_that_it_is_mounted(
    run: Run, text: str
) -> None:
    """The input had no config, the person read, who saw the key in it."""
    given = [config_map(mine=text), config_map("other", b=MPS_4, c=MPS_4), node(**{CONFIG_LABEL: "mine"})]
    code, plans, notes = run("import", given)
    assert (code, plans) == (1, [])
    assert "n1: gpu-operator/plugin-configs mine: is no config of the device plugin, which is a mapping" in notes
    assert "give --config-map gpu-operator/plugin-configs" in notes
    _, plans, notes = run("import", given, "--config-map", "gpu-operator/plugin-configs")
    shares_nothing = {"": "", "{app: {port: 80}}": "app: unknown to the device plugin, which ignores it"}
    assert plans == []
    assert ("n1: config 'mine' shares nothing" in notes) is (text in shares_nothing)
    assert ("plugin-configs mine: (the document): is no" in notes) is (text not in shares_nothing)
    assert shares_nothing.get(text, "") in notes


@pytest.mark.parametrize("block", ["timeSlicing", "timeslicing", "mps"])
def test_sharing_that_is_not_under_its_key_is_remarked_on(run: Run, block: str) -> None:
    text = f"version: v1\n{block}: {{resources: [{{name: gpu, replicas: 4}}]}}"
    code, plans, notes = run("import", [config_map(default=text), node()])
    assert (code, plans) == (0, [])
    assert f"{block}: unknown to the device plugin, which ignores it: write it under sharing" in notes
    assert "n1: config 'default' shares nothing" in notes


def test_a_name_that_the_plugin_does_not_give_is_remarked_on(run: Run) -> None:
    text = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, rename: NAME, replicas: 4}]}}"
    ignored = "resources[0].rename: ignored, pods request nvidia.com/gpu.shared"
    for name, remarked in {"gpu.mine": True, "gpu.shared": False, "nvidia.com/gpu.shared": False}.items():
        _, plans, notes = run("import", [config_map(any=text.replace("NAME", name)), node()])
        assert items(plans)["n1"][0]["mps"]["renameByDefault"]
        assert (ignored in notes) is remarked, notes


def test_a_refused_node_reads_of_nothing_that_becomes_replicas(run: Run) -> None:
    text = "sharing: {timeSlicing: {resources: [{name: NAME, replicas: 4}]}}"
    for name, count in {"t4": "2", "gpu.shared": "2", "gpu": "17"}.items():
        code, plans, notes = run("import", [config_map(any=text.replace("NAME", name)), node(count=count)])
        assert (code, plans) == (1, [])
        assert "time-slicing becomes" not in notes
        assert (f"sharing of nvidia.com/{name} has no equal: plans share nvidia.com/gpu" in notes) is (count == "2")
