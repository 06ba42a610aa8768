"""The published table and picture: they are what the kept figures say, and nothing is left out."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.over_time import published
from benchmarks.over_time.picture import svg
from benchmarks.over_time.published import (
    CASES,
    FIGURES,
    VARIANTS,
    Case,
    documents,
    figures,
    main,
    policies_of,
    worth,
)

SVG = "{http://www.w3.org/2000/svg}"
ROW = {"policy": "gpuplan", "mean": 1.0, "least": 0.1, "greatest": 10.0}


def test_page_and_picture_are_fresh() -> None:
    assert [path.name for path, text in documents().items() if path.read_text() != text] == []


def test_every_policy_has_its_figures_in_every_workload() -> None:
    rows = json.loads(FIGURES.read_text())
    found = {title: [row["policy"] for row in each] for title, each in rows.items()}
    assert found == {case.title: list(policies_of(case)) for case in CASES}


def test_picture_has_a_dot_at_each_mean_and_a_bar_around_it() -> None:
    rows = [ROW, {**ROW, "policy": "nos", "mean": 100.0, "greatest": 1e9}]
    root = ElementTree.fromstring(svg({"a <b>": rows}))
    dots = [float(one.attrib["cx"]) for one in root.iter(f"{SVG}circle")][2:]
    ticks = {one.text: float(one.attrib["x"]) for one in root.iter(f"{SVG}text")}
    assert dots == [ticks["1"], ticks["100"]]
    bars = [one.attrib["d"] for one in root.iter(f"{SVG}path") if "stroke-width" in one.attrib]
    assert [bar.split("H")[1] for bar in bars] == [str(ticks["10"]), str(ticks["10,000"])]
    assert "a <b>" in ticks


def test_the_pod_that_can_never_run_counts_for_none_of_the_others() -> None:
    case = Case("stuck", "nodes=1,gpus=1,model=H100-80GB", "one in front")
    found = figures(case, "first-fit", (1,))
    assert found["largest"] is None
    assert found["longest"] < 20_000  # it waits until the replay ends


@pytest.mark.slow
@pytest.mark.thorough
def test_measure_renews_the_policies_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("trickle", "nodes=1,gpus=1,model=H100-80GB", "a few")
    monkeypatch.setattr(published, "CASES", (case,))
    monkeypatch.setattr(published, "SEEDS", (1, 2))
    monkeypatch.setattr(published, "FIGURES", tmp_path / "waits.json")
    monkeypatch.setattr(published, "PICTURE", tmp_path / "waits.svg")
    monkeypatch.setattr(published, "PAGE", tmp_path / "page.md")
    marks = [f"<!-- {mark}: begin -->\nold\n<!-- {mark}: end -->\n" for mark in published.MARKS]
    (tmp_path / "page.md").write_text("".join(["before\n", *marks, "after\n"]))

    assert main(["--measure", "first-fit"]) == 0
    assert main(["--measure", "gpuplan", *VARIANTS]) == 0
    assert main(["--check"]) == 1
    assert main(["--write"]) == 0
    assert main(["--check"]) == 0
    lines = (tmp_path / "page.md").read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert [line.split(" | ")[1] for line in lines if "[" in line] == ["**gpuplan**", *VARIANTS, "first-fit"]


def test_a_rule_is_judged_on_the_same_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "CASES", (Case("turning", "nodes=1", "a few"),))
    own = {"means": [10.0, 20.0, 30.0], "maxima": [1.0, 1.0, 1.0]}
    better = {"means": [9.0, 18.0, 27.0], "maxima": [1.0, 1.0, 1.0]}
    rows = [{"policy": name, **(better if name == "counts written" else own)} for name in ("gpuplan", *VARIANTS)]
    assert list(worth({"a few": rows}))[2] == (
        "| a few | the same | the same | the same | the same | -2.0 ± 1.5 | the same |\n"
    )
