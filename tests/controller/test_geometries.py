"""knownMigGeometries: what files say, what of it counts, and what planning makes of it."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from controller.__main__ import main
from controller.geometries import GeometriesError, KnownGeometries, all_warnings, model_named, read_geometries
from controller.options import planner_options, telling
from controller.planner import plan
from controller.reasons import UnplacedReason
from controller.settings import read_settings
from controller.views import MigDesired, PlannerOptions, PlanningResult, Snapshot
from kube.settings import SettingsError
from partitioning.models import ProfileSpec, model_from_report
from tests.controller.planner.builders import A30, A100, H100, cluster, holder, mig, pod, server
from tests.controller.planner.checker import check

NOS_FILE = Path(__file__).parent / "data" / "nos_known_mig_geometries.yaml"
NOS = yaml.safe_load(NOS_FILE.read_text())


def only(*geometries: dict[str, int], models: tuple[str, ...] = ("NVIDIA-A100-SXM4-40GB",)) -> KnownGeometries:
    return read_geometries([{"models": list(models), "allowedGeometries": list(geometries)}])


def planned(snapshot: Snapshot, known: KnownGeometries) -> PlanningResult:
    result = plan(snapshot, PlannerOptions(geometries=known))
    check(snapshot, result)
    return result


def layouts(result: PlanningResult) -> list[str]:
    return [
        str(item.desired.layout)
        for change in result.node_changes
        for item in change.gpus
        if isinstance(item.desired, MigDesired)
    ]


# --------------------------------------------------------------------------------------------- reading files


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
    ids=["key", "helm", "beside-others", "older"],
)
def test_every_form_in_which_people_have_it(content: object) -> None:
    assert read_geometries(content).entries == read_geometries(NOS).entries


@pytest.mark.parametrize(
    "name",
    ["A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-40GB-SXM4", "NVIDIA-A100-40GB-PCIe", "A100-PCIE-40GB"],
)
def test_names_that_people_write(name: str) -> None:
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


def test_the_rest_of_a_file_counts_beside_a_group_that_is_none() -> None:
    known = read_geometries([{"models": "A30"}, "nothing", *NOS])

    assert known.entries == read_geometries(NOS).entries
    assert [line[:18] for line in known.warnings[:2]] == ["group 0 is ignored", "group 1 is ignored"]


@pytest.mark.parametrize("content", [None, "text", 7])
def test_a_file_of_another_form_is_refused(content: object) -> None:
    with pytest.raises(GeometriesError, match="must be a list of groups of models and allowedGeometries"):
        read_geometries(content)


def test_a_model_of_which_nothing_can_exist_is_not_cut() -> None:
    known = only({"1g.10gb": 9})

    assert "no geometry that can exist: GPUs of this model will not be cut" in known.warnings[-1]
    assert planned(cluster(server("n", mig()), pending=[pod("a", "1g.5gb")]), known).placed == ()


# -------------------------------------------------------------------------------------------------- planning


def test_models_that_are_not_named_are_not_restricted() -> None:
    known = read_geometries(NOS)

    assert known.restrict(H100) is H100
    assert KnownGeometries().restrict(A100) is A100


def test_only_what_is_allowed_is_made() -> None:
    """nos' file lacks 4g + 3g, which fit one A100."""
    snapshot = cluster(server("n", mig(0), mig(1)), pending=[pod("a", "4g.20gb"), pod("b", "3g.20gb")])

    assert layouts(planned(snapshot, KnownGeometries())) == ["4g.20gb at 0, 3g.20gb at 4"]
    assert len(layouts(planned(snapshot, read_geometries(NOS)))) == 2


def test_a_part_of_an_allowed_geometry_is_allowed() -> None:
    known = only({"1g.5gb": 3, "3g.20gb": 1})
    pending = [pod("large", "3g.20gb"), *(pod(f"small{n}", "1g.5gb") for n in range(2))]
    result = planned(cluster(server("n", mig()), pending=pending), known)

    assert len(result.placed) == 3


def test_what_is_in_use_counts() -> None:
    known = only({"1g.5gb": 3, "3g.20gb": 1})
    used = [("1g.5gb", start) for start in range(3)]
    gpu, held = mig(used=used), holder("n", ("1g.5gb", 3))

    (unplaced,) = planned(cluster(server("n", gpu), pods=[held], pending=[pod("a", "1g.5gb")]), known).unplaced
    assert unplaced.reason is not UnplacedReason.NEVER_FITS
    result = planned(cluster(server("n", gpu), pods=[held], pending=[pod("b", "3g.20gb")]), known)
    assert layouts(result) == ["1g.5gb at 0, 1g.5gb at 1, 1g.5gb at 2, 3g.20gb at 4"]


def test_idle_instances_beyond_an_allowed_geometry_go_when_the_gpu_is_cut() -> None:
    known = only({"1g.5gb": 1, "3g.20gb": 1})
    snapshot = cluster(server("n", mig(idle=[("1g.5gb", 0), ("1g.5gb", 1)])), pending=[pod("a", "3g.20gb")])

    assert layouts(planned(snapshot, known)) in (["1g.5gb at 0, 3g.20gb at 4"], ["1g.5gb at 1, 3g.20gb at 4"])


def test_what_is_there_serves_pods_even_if_it_would_not_be_made() -> None:
    snapshot = cluster(server("n", mig(idle=[("2g.10gb", 0)])), pending=[pod("a", "2g.10gb")])
    result = planned(snapshot, only({"7g.40gb": 1}))

    assert len(result.placed) == 1
    assert result.node_changes == ()


@pytest.mark.parametrize("profile", ["2g.10gb", "1g.5gb"])
def test_a_profile_that_is_never_allowed_is_blocked_by_the_file(profile: str) -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", profile)])
    (unplaced,) = planned(snapshot, only({"7g.40gb": 1})).unplaced

    assert unplaced.reason is UnplacedReason.BLOCKED
    assert "offers 7g.40gb (by knownMigGeometries): allow it in knownMigGeometriesFile" in unplaced.message


def test_more_than_a_file_allows_together_is_blocked_by_it() -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", ("1g.5gb", 3))])
    (unplaced,) = planned(snapshot, only({"1g.5gb": 2})).unplaced

    assert unplaced.reason is UnplacedReason.BLOCKED
    assert "allow at most 2 x nvidia.com/mig-1g.5gb on one node, and the pod asks 3 x" in unplaced.message


def test_a_profile_that_the_model_lacks_never_fits_whatever_a_file_allows() -> None:
    snapshot = cluster(server("n", mig()), pending=[pod("a", "1g.10gb+gfx")])
    (unplaced,) = planned(snapshot, only({"7g.40gb": 1})).unplaced

    assert unplaced.reason is UnplacedReason.NEVER_FITS


def test_more_pods_than_a_list_allows() -> None:
    """Seven of 1g or one of 7g: the packing test, the bound and the placing agree on that."""
    known = only({"1g.5gb": 4}, {"7g.40gb": 1})
    gpus = [mig(index) for index in range(3)]
    pending = [pod(f"small{n}", "1g.5gb") for n in range(9)] + [pod("large", "7g.40gb")]
    result = planned(cluster(server("n", *gpus), pending=pending), known)

    assert len(result.placed) == 9
    assert all(text.count("1g.5gb") <= 4 for text in layouts(result))


# --------------------------------------------------------------- models that only their nodes' NVML knows


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
    known = only({"1g.50gb": 2}, {"2g.100gb": 1}, models=("NVIDIA-X900",))
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
        told = telling(plan, options)
        assert [len(told(snapshot, options).placed) for _ in range(2)] == [2, 2]
    assert sum("2g.100gb" in line for line in caplog.messages) == 1


def test_nvml_decides_what_can_exist_on_a_node() -> None:
    """A driver that offers fewer profiles than the catalogue knows."""
    fewer = model_from_report(
        "NVIDIA A30", 24_258, [spec for spec in A30.profiles if spec.name in ("1g.6gb", "4g.24gb")]
    )
    restricted = read_geometries(NOS).restrict(fewer)

    assert restricted.geometries == ((("1g.6gb", 4),), (("4g.24gb", 1),))
    assert len(read_geometries(NOS).ignored(fewer)) == 2


# -------------------------------------------------------------------------------------------------- settings


def test_the_setting_names_the_file() -> None:
    options = planner_options(read_settings({"knownMigGeometriesFile": str(NOS_FILE)}))

    assert options.geometries == read_geometries(NOS)
    assert planner_options(read_settings({})).geometries is None
    assert telling(plan, PlannerOptions()) is plan


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "name a readable file"), ("a: [", "is not valid YAML"), ("- 1\n--- x", "YAML"), ("text", "must be a list")],
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
    assert "none.yaml: No such file or directory: name a readable file" in capsys.readouterr().err


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
