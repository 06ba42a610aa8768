"""The agent's settings file: defaults, and errors that name the key."""

from pathlib import Path

import pytest

from kube.settings import SettingsError, load, read
from nodeagent.settings import Settings


def test_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")

    assert load(Settings, tmp_path / "empty.yaml") == Settings()
    assert Settings().kubelet_start_seconds == 60
    assert Settings().write_allocatable


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"stateDirr": "/x"}, "unknown key stateDirr (did you mean stateDir?)"),
        ({"resyncSeconds": 0}, "resyncSeconds is 0: input should be greater than 0; the default is 10"),
        ({"logLevel": "loud"}, "logLevel is 'loud'"),
        (
            {"cdiSpecDirs": 7},
            "cdiSpecDirs is 7: input should be a valid tuple; the default is [/etc/cdi, /var/run/cdi]",
        ),
        ([], "must be a mapping"),
    ],
)
def test_a_wrong_setting_is_named(content: object, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(Settings, content)
    assert sentence in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unreadable"):
        load(Settings, tmp_path / "unreadable")
    for text in ("{", "a: 2024-13-01\nb: " + "7" * 4301, "!!timestamp x"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(SettingsError, match="is not valid YAML"):
            load(Settings, tmp_path / "bad.yaml")
    (tmp_path / "bad.yaml").write_text("[" * 200_000)
    with pytest.raises(SettingsError, match="is nested deeper than"):
        load(Settings, tmp_path / "bad.yaml")
