"""The settings file: defaults, every way to get it wrong, and the message for each."""

from pathlib import Path

import pytest

from controller.config.settings import Settings, load_settings, read_settings
from kube.settings import SettingsError


def test_defaults_are_those_of_the_design() -> None:
    settings = read_settings({})
    assert (settings.batch_window_timeout_seconds, settings.batch_window_idle_seconds) == (5.0, 1.0)
    assert settings.leader_election.enabled
    assert settings.leader_election.lease_duration_seconds == 15.0
    assert settings.namespace == "gpuplan-system"
    assert settings.metrics_address == "127.0.0.1"
    assert settings.nominate_pods
    assert (settings.agent_silent_seconds, settings.under_way_seconds) == (60.0, 300.0)


def test_every_field_is_documented() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_reads_a_file(tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("batchWindowIdleSeconds: 1\nbatchWindowTimeoutSeconds: 5\nleaderElection: {enabled: false}\n")
    settings = load_settings(file)
    assert settings.batch_window_idle_seconds == 1.0
    assert not settings.leader_election.enabled


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("# nothing yet\n")
    assert load_settings(file) == read_settings({})


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"batchWindowIdelSeconds": 1}, ["unknown key batchWindowIdelSeconds", "did you mean batchWindowIdleSeconds"]),
        ({"batch_window_idle_seconds": 1}, ["unknown key batch_window_idle_seconds", "batchWindowIdleSeconds"]),
        (
            {"leaderElection": {"leaseSeconds": 1}},
            ["unknown key leaderElection.leaseSeconds", "leaseDurationSeconds, renewDeadlineSeconds"],
        ),
        ({"batchWindowIdleSeconds": "ten"}, ["batchWindowIdleSeconds is 'ten'", "valid number", "default is 1"]),
        ({"batchWindowIdleSeconds": 0}, ["batchWindowIdleSeconds is 0", "greater than 0"]),
        ({"metricsPort": 70000}, ["metricsPort is 70000", "less than or equal to 65535", "default is 9840"]),
        ({"leaderElection": True}, ["leaderElection is True", "leaseDurationSeconds"]),
        ({"schedulerNames": []}, ["schedulerNames is []", "default is [default-scheduler]"]),
        ({"logLevel": "loud"}, ["logLevel is 'loud'", "'debug', 'info'"]),
        ({"batchWindowIdleSeconds": 70}, ["batchWindowIdleSeconds (70)", "batchWindowTimeoutSeconds (5)"]),
        ({"taintRemovalSeconds": 30}, ["taintRemovalSeconds (30)", "agentSilentSeconds (60)"]),
        ({"leaderElection": {"renewDeadlineSeconds": 20}}, ["leaseDurationSeconds must be greater", "15, 10 and 2"]),
        (["a"], ["must be a mapping", "a list"]),
    ],
)
def test_bad_values_name_the_remedy(content: object, parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(content)
    for part in parts:
        assert part in str(caught.value)


def test_several_problems_are_reported_at_once_each_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("metricsPort: -1\nnominatePod: true\n")
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{file}: ") for line in lines)


@pytest.mark.parametrize("text", [None, "a: [1", "\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "controller.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=r"controller\.yaml: "):
        load_settings(file)
