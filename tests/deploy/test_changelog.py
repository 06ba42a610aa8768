"""Fragments of the changelog: those that lie in changes/ are well formed, and a release takes each in once."""

from pathlib import Path

import pytest

from deploy.release import changelog
from deploy.release.changelog import assembled, fragments

OLD = "# Changelog\n\nWords.\n\n## 1.0.0 - 2026-01-01\n\n### Added\n\n- All.\n"
NEW = [("Fixed", "- A hole.\n"), ("Added: MPS", "- A size.\n"), ("Added: MIG", "- A model,\n  with a name.\n")]


def test_the_fragments_that_lie_there_are_well_formed() -> None:
    fragments(changelog.FRAGMENTS)


def test_the_changelog_itself_can_take_them() -> None:
    text = changelog.CHANGELOG.read_text()
    assert assembled(text, "Unreleased", []) == text


def test_a_release_puts_them_above_the_last_one_by_kind() -> None:
    assert assembled(OLD, "1.1.0 - 2026-02-02", NEW) == (
        "# Changelog\n\nWords.\n\n## 1.1.0 - 2026-02-02\n\n### Added: MPS\n\n- A size.\n\n"
        "### Added: MIG\n\n- A model,\n  with a name.\n\n### Fixed\n\n- A hole.\n\n"
        "## 1.0.0 - 2026-01-01\n\n### Added\n\n- All.\n"
    )


def test_they_join_what_is_unreleased_under_its_headings() -> None:
    text = "# Changelog\n\n## Unreleased\n\nWords.\n\n### Added: MIG\n\n- Old.\n\n## 1.0.0\n\n- All.\n"
    assert assembled(text, "1.1.0", NEW) == (
        "# Changelog\n\n## 1.1.0\n\nWords.\n\n### Added: MIG\n\n- Old.\n- A model,\n  with a name.\n\n"
        "### Added: MPS\n\n- A size.\n\n### Fixed\n\n- A hole.\n\n## 1.0.0\n\n- All.\n"
    )


@pytest.mark.parametrize("text", ["# Changelog\n", OLD])
def test_nothing_new_changes_nothing(text: str) -> None:
    assert assembled(text, "1.1.0", []) == text


def test_of_the_first_release(tmp_path: Path) -> None:
    assert assembled("# Changelog\n", "0.1.0", NEW[:1]) == "# Changelog\n\n## 0.1.0\n\n### Fixed\n\n- A hole.\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("- A hole.\n", id="no heading"),
        pytest.param("### New\n\n- A hole.\n", id="another heading"),
        pytest.param("### Fixed\n- A hole.\n", id="no empty line"),
        pytest.param("### Fixed\n\nA hole.\n", id="no bullet"),
        pytest.param("### Fixed\n\n- A hole.\n\nAnd words.\n", id="words below"),
        pytest.param("### Fixed\n\n- A hole.\n## 2.0.0\n", id="a part of its own"),
        pytest.param("", id="empty"),
    ],
)
def test_a_fragment_of_another_form_is_refused_and_nothing_is_written(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/odd.md").write_text(text)
    (tmp_path / "changes/well.md").write_text("### Fixed\n\n- A hole.\n")
    (tmp_path / "CHANGELOG.md").write_text(OLD)
    monkeypatch.setattr(changelog, "FRAGMENTS", tmp_path / "changes")
    monkeypatch.setattr(changelog, "CHANGELOG", tmp_path / "CHANGELOG.md")
    assert changelog.main("1.1.0") == 1
    assert "odd.md: a fragment is" in capsys.readouterr().err
    assert (tmp_path / "CHANGELOG.md").read_text() == OLD
    assert (tmp_path / "changes/well.md").exists()


def test_a_release_takes_each_in_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes/README.md").write_text("What lies here.\n")
    (tmp_path / "changes/hole.md").write_text("### Fixed\n\n- A hole.\n")
    (tmp_path / "CHANGELOG.md").write_text(OLD)
    monkeypatch.setattr(changelog, "FRAGMENTS", tmp_path / "changes")
    monkeypatch.setattr(changelog, "CHANGELOG", tmp_path / "CHANGELOG.md")
    assert changelog.main("1.1.0") == 0
    written = (tmp_path / "CHANGELOG.md").read_text()
    assert "## 1.1.0 - 20" in written
    assert written.count("- A hole.") == 1
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]
