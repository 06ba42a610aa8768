"""knownMigGeometries: what files contain, and what of it counts."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from controller.__main__ import main
from controller.config.geometries_file import GeometriesError, read_geometries
from controller.config.options import planner_options, warn_about_geometries
from controller.config.settings import read_settings
from controller.model.known_geometries import all_warnings, model_named
from controller.model.views import PlannerOptions
from controller.planning import plan
from kube.settings import SettingsError
from partitioning.models import ProfileSpec, model_from_report
from tests.builders.models import A30, A100
from tests.controller.planner.builders import cluster, mig, pod, server

NOS_FILE = Path(__file__).parent.parent / "data" / "nos_known_mig_geometries.yaml"
NOS = yaml.safe_load(NOS_FILE.read_text())


def test_the_file_that_nos_ships_loads() -> None:
    known = read_geometries(NOS)

    assert {key: len(entries) for key, entries in known.entries.items()} == {
        "A30-24GB": 4,
        "A100-40GB": 12,
        "A100-80GB": 12,
    }
    (warning,) = known.warnings
    assert warning.startswith("{2g.20gb: 2, 3g.20gb: 1} of NVIDIA-A100-SXM4-80GB is ignored: ")
    assert "has no profile 3g.20gb: use one of 1g.10gb" in warning


def test_names_of_later_drivers_are_the_same_profiles() -> None:
    eighty = model_named("NVIDIA-A100-80GB-PCIe")
    assert eighty is not None
    restricted = read_geometries(NOS).restrict(eighty)

    assert restricted.geometries is not None
    assert (("7g.80gb", 1),) in restricted.geometries
    assert len(restricted.geometries) == 11


@pytest.mark.parametrize(
    "content",
    [
        {"knownMigGeometries": NOS},
        {"gpuPartitioner": {"enabled": True, "knownMigGeometries": NOS}},
        {"deployed": {"source": ["values.yaml"], "groups": NOS}, "builtin": {"groups": []}},
        {name: group["allowedGeometries"] for group in NOS for name in group["models"]},
    ],
    ids=["key", "helm", "next-to-others", "older"],
)
def test_every_form_that_is_in_use(content: object) -> None:
    assert read_geometries(content).entries == read_geometries(NOS).entries


@pytest.mark.parametrize(
    "name",
    ["A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-40GB-SXM4", "NVIDIA-A100-40GB-PCIe", "A100-PCIE-40GB"],
)
def test_names_that_are_in_use(name: str) -> None:
    found = model_named(name)
    assert found is not None
    assert found.key == "A100-40GB"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"1g.5gb": 8}, "{1g.5gb: 8} of A30x .* 1 x 1g.5gb too many"),
        ({"4g.20gb": 2}, "too many"),
        ({"1g.5gb": 0}, "0 x 1g.5gb is no count"),
        ({"1g.5gb": "two"}, "'two' x 1g.5gb is no count"),
        ({"1g.5GB": 1}, "write '1g.5gb', in lower case"),
        ({"9g.99gb": 1}, "has no profile 9g.99gb"),
        ({}, "write counts by profile"),
        ("1g.5gb", "write counts by profile"),
    ],
)
def test_an_entry_that_cannot_exist_is_ignored_and_named(entry: object, words: str) -> None:
    content = [{"models": ["NVIDIA-A100-SXM4-40GB"], "allowedGeometries": [{"1g.5gb": 7}, entry]}]
    known = read_geometries(content)

    (warning,) = known.warnings
    assert "is ignored: " in warning
    assert all(part in warning for part in words.replace("A30x", "NVIDIA-A100-SXM4-40GB is ignored:").split(" .* "))
    assert known.restrict(A100).geometries == ((("1g.5gb", 7),),)


def test_the_rest_of_a_file_counts_alongside_a_malformed_group() -> None:
    known = read_geometries([{"models": "A30"}, "nothing", *NOS])

    assert known.entries == read_geometries(NOS).entries
    assert [line[:18] for line in known.warnings[:2]] == ["group 0 is ignored", "group 1 is ignored"]


@pytest.mark.parametrize("content", [None, "text", 7])
def test_a_file_of_another_form_is_refused(content: object) -> None:
    with pytest.raises(GeometriesError, match="must be a list of groups of models and allowedGeometries"):
        read_geometries(content)


def test_a_file_in_the_form_of_hami_restricts_or_is_refused() -> None:
    hami = {"nvidia": {"knownMigGeometries": [{"models": ["A30"], "allowedGeometries": [[{"name": "1g.6gb"}]]}]}}
    with pytest.raises(GeometriesError, match="no group with models and allowedGeometries"):
        read_geometries(hami)


def new_card() -> tuple[ProfileSpec, ...]:
    return (_spec("1g.50gb", 1, 1, (0, 1, 2, 3)), _spec("4g.200gb", 2, 4, (0,)))


def _spec(name: str, profile_id: int, slices: int, starts: tuple[int, ...]) -> ProfileSpec:
    return ProfileSpec(
        name=name,
        profile_id=profile_id,
        nvml_index=1000 + profile_id,
        compute_slices=slices,
        size=slices,
        memory_mib=None,
        sm_count=None,
        max_instances=len(starts),
        starts=starts,
    )


def test_a_model_that_the_catalogue_lacks_is_used_where_nvml_confirms_it(caplog: pytest.LogCaptureFixture) -> None:
    allowed = [{"1g.50gb": 2}, {"2g.100gb": 1}]
    known = read_geometries([{"models": ["NVIDIA-X900"], "allowedGeometries": allowed}])
    (warning,) = known.warnings
    assert "NVIDIA-X900 is no model of the catalogue: used only on nodes whose NVML reports this name" in warning

    card = model_from_report("NVIDIA X900", 200_000, new_card())
    assert known.restrict(card).geometries == ((("1g.50gb", 2),),)
    assert all_warnings(known, [card, card]) == (warning, *known.ignored(card))
    assert "has no profile 2g.100gb" in known.ignored(card)[0]

    gpu = replace(mig(), model=card)
    snapshot = cluster(server("n", gpu), pending=[pod(f"p{n}", "1g.50gb") for n in range(3)])
    options = PlannerOptions(geometries=known)
    with caplog.at_level(logging.WARNING):
        warned = warn_about_geometries(plan, options)
        assert [len(warned(snapshot, options).placed) for _ in range(2)] == [2, 2]
    assert sum("2g.100gb" in line for line in caplog.messages) == 1


def test_nvml_decides_what_can_exist_on_a_node() -> None:
    """A driver that has fewer profiles than the catalogue knows."""
    fewer = model_from_report(
        "NVIDIA A30", 24_258, [spec for spec in A30.profiles if spec.name in ("1g.6gb", "4g.24gb")]
    )
    restricted = read_geometries(NOS).restrict(fewer)

    assert restricted.geometries == ((("1g.6gb", 4),), (("4g.24gb", 1),))
    assert len(read_geometries(NOS).ignored(fewer)) == 2


def test_the_setting_names_the_file() -> None:
    options = planner_options(read_settings({"knownMigGeometriesFile": str(NOS_FILE)}))

    assert options.geometries == read_geometries(NOS)
    assert planner_options(read_settings({})).geometries is None
    assert warn_about_geometries(plan, PlannerOptions()) is plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "name a readable YAML file"),
        ("a: [", "is not valid YAML"),
        ("- 1\n--- x", "has 2 documents: one is needed"),
        ("!!timestamp x", "is not valid YAML"),
        ("[" * 200_000, "is nested deeper than"),
        ("text", "must be a list"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_settings_error(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "known.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingsError, match=words):
        planner_options(read_settings({"knownMigGeometriesFile": str(path)}))


def test_the_controller_ends_with_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "controller.yaml").write_text(f"knownMigGeometriesFile: {tmp_path}/none.yaml\nmetricsPort: 0\n")
    arguments = ["--config", str(tmp_path / "controller.yaml"), "--kubeconfig", str(tmp_path / "kubeconfig")]

    assert main(arguments) == 2
    assert "none.yaml: No such file or directory: name a readable YAML file" in capsys.readouterr().err


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
