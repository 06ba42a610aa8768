"""Where the scheduler's configuration comes from: file, ConfigMap, default, and what is reported of each."""

import itertools
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.config import scheduler_source
from controller.config.options import planner_options
from controller.config.scheduler_source import SourceWatch, scheduler_profiles
from controller.config.settings import read_settings
from controller.model.scheduling import FilterProfile
from kube import apply, clients
from kube.settings import SettingsError
from tests.apiserver import ApiServer, Refuse
from tests.builders.objects import config_map
from tests.waiting import SECONDS, eventually

MINE = json.dumps(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}, {"schedulerName": "other"}],
    }
)
PLACE = {"name": "kube-scheduler", "namespace": "default"}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def create(server: ApiServer, name: str, data: dict[str, str]) -> None:
    apply.create(clients.for_url(server.url), "/api/v1/namespaces/default/configmaps", config_map(name, data))


def found(server: ApiServer | None = None, **settings: Any) -> list[str] | None:
    api = clients.for_url(server.url) if server is not None else None
    profiles = scheduler_profiles(read_settings(settings), api)
    return None if profiles is None else sorted(profiles)


def test_no_source_is_the_default() -> None:
    assert found() is None
    options = planner_options(read_settings({}))
    assert options.scheduler_names == {"default-scheduler"}
    assert dict(options.profiles) == {}


def test_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "scheduler.yaml"
    with caplog.at_level(logging.WARNING):
        assert found(schedulerConfigFile=str(path)) is None
    assert f"{path} is not there" in caplog.text

    path.write_text(MINE)
    assert found(schedulerConfigFile=str(path)) == ["mine", "other"]

    path.write_text("kind: Pod")
    with pytest.raises(SettingsError, match=r"schedulerConfigFile: .* a KubeSchedulerConfiguration"):
        found(schedulerConfigFile=str(path))


def test_the_profiles_name_the_schedulers_that_are_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(MINE)
    settings = {"schedulerConfigFile": str(path)}

    assert planner_options(read_settings(settings)).scheduler_names == {"mine", "other"}
    one = planner_options(read_settings({**settings, "schedulerNames": ["mine"]}))
    assert one.scheduler_names == {"mine"}
    assert one.profiles["mine"] == FilterProfile(scheduler_name="mine")


def test_a_config_map(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    create(server, "one", {"config.yaml": MINE})
    create(server, "two", {"a": MINE, "b": ""})
    create(server, "none", {})

    assert found(server, scheduler={"config": PLACE | {"name": "one"}}) == ["mine", "other"]
    assert found(server, scheduler={"config": PLACE | {"name": "two", "key": "a"}}) == ["mine", "other"]
    assert found(server, scheduler={"config": PLACE | {"name": "two", "key": "b"}}) == ["default-scheduler"]
    assert found(None, scheduler={"config": PLACE | {"name": "one"}}) is None
    for place, words in (
        ({"name": "two"}, "has several keys: name one of a, b in key"),
        ({"name": "two", "key": "c"}, "has no key c: name one of a, b"),
        ({"name": "none"}, "is empty"),
    ):
        with pytest.raises(SettingsError, match=words):
            found(server, scheduler={"config": PLACE | place})
    with caplog.at_level(logging.WARNING):
        assert found(server, scheduler={"config": PLACE | {"name": "gone"}}) is None
    assert "ConfigMap default/gone is not there" in caplog.text


def test_a_config_map_that_may_not_be_read_is_no_reason_to_guess(server: ApiServer) -> None:
    server.faults.append(lambda request: Refuse(code=403) if request.path.endswith("/configmaps/secret") else None)

    with pytest.raises(SettingsError, match="ConfigMap default/secret cannot be read"):
        found(server, scheduler={"config": PLACE | {"name": "secret"}})


def test_a_config_map_of_another_content(server: ApiServer) -> None:
    create(server, "odd", {"config.yaml": "[]"})

    with pytest.raises(SettingsError, match=r"ConfigMap default/odd, key config\.yaml: the configuration must be"):
        found(server, scheduler={"config": PLACE | {"name": "odd"}})


def test_a_file_that_changes_is_noticed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(MINE)
    settings = read_settings({"schedulerConfigFile": str(path)})
    known = scheduler_profiles(settings) or {}
    changed = threading.Semaphore(0)
    watch = SourceWatch(
        settings, clients.for_url("http://127.0.0.1:9"), known, changed=changed.release, poll_seconds=0.01
    )
    watch.start()
    try:
        path.write_text(MINE + "\n# the same, with a remark")
        assert not changed.acquire(timeout=0.1)
        with caplog.at_level(logging.WARNING):
            path.write_text("[]")
            assert eventually(lambda: "keeping the configuration that was read before" in caplog.text, "the warning")
        assert caplog.text.count("keeping the configuration") == 1
        for text in ("a: 2024-13-01", "a: " + "7" * 4301, "[" * 9000 + "]" * 9000, "!!timestamp x"):
            caplog.clear()
            path.write_text(text)
            assert eventually(lambda: "keeping the configuration that was read before" in caplog.text, text[:20])
        path.unlink()
        assert changed.acquire(timeout=SECONDS)
        assert not changed.acquire(timeout=0.1)
    finally:
        watch.stop()


def test_a_file_that_is_being_written_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read between its truncation and its content."""
    known = {"mine": FilterProfile(scheduler_name="mine")}
    seen: Iterator[Any] = itertools.chain([known, None, known, None, known], itertools.repeat(None))
    looks: list[Any] = []
    changed = threading.Event()

    def load(_path: Path) -> Any:
        looks.append(next(seen))
        return looks[-1]

    monkeypatch.setattr(scheduler_source, "load_profiles", load)
    settings = read_settings({"schedulerConfigFile": "f"})
    watch = SourceWatch(settings, clients.for_url("http://127.0.0.1:9"), known, changed=changed.set, poll_seconds=0.001)
    watch.start()

    assert changed.wait(SECONDS)
    watch.stop()
    assert len(looks) == 7


def test_a_config_map_that_changes_is_noticed(server: ApiServer) -> None:
    create(server, "changing", {"config.yaml": MINE})
    api = clients.for_url(server.url)
    settings = read_settings({"scheduler": {"config": PLACE | {"name": "changing"}}})
    changed = threading.Semaphore(0)
    watch = SourceWatch(
        settings, api, scheduler_profiles(settings, api) or {}, changed=changed.release, poll_seconds=0.01
    )
    watch.start()
    try:
        assert not changed.acquire(timeout=0.1)
        apply.merge_patch(
            api,
            "/api/v1/namespaces/default/configmaps/changing",
            {"data": {"config.yaml": MINE.replace("mine", "ours")}},
        )
        assert changed.acquire(timeout=SECONDS)
    finally:
        watch.stop()


def test_without_a_source_nothing_is_read() -> None:
    watch = SourceWatch(
        read_settings({}), clients.for_url("http://127.0.0.1:9"), {}, changed=pytest.fail, poll_seconds=0.0
    )
    watch.start()
    assert "scheduler's configuration" not in {thread.name for thread in threading.enumerate()}
    watch.stop()
