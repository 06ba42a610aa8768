"""Agent and device plugin of neighbouring versions on one node: each reads what the other one writes.

`earlier/` was recorded by `tests.skew.record`: a node with a MIG instance and one with an MPS slice and a whole GPU,
all in use, and the schemas by which its programs read (`readers.json`). Version 0.1.0 is as far back as an upgrade may
begin: from then on its files stay as they are.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodeagent.handover.config import (
    Allocation,
    Device,
    DeviceKind,
    DeviceListStrategy,
    Loaded,
    PluginConfig,
    PluginFiles,
    Problem,
    read_config,
    read_ledger,
    read_loaded,
    write_config,
    write_ledger,
    write_loaded,
)
from nodeagent.observed.holdings import Holdings
from nodeagent.statedir import StateDir
from nodeagent.steps.journal import Action, Intent, Journal
from partitioning.layouts import Instance
from tests.clock import Clock

EARLIER = Path(__file__).parent / "earlier"
READERS = json.loads((EARLIER / "readers.json").read_text())
GPU = "GPU-96524628-700d-529f-a321-321e4fd46655"
PLACED = Instance(start=4, size=4, profile="3g.40gb")
DEVICES = (
    Device(id="MIG-0", resource="nvidia.com/mig-3g.40gb", gpu="GPU-a", kind=DeviceKind.MIG, memory_mib=40448),
    Device(
        id="GPU-b::0", resource="nvidia.com/gpu-10gb", gpu="GPU-b", kind=DeviceKind.MPS, memory_mib=9536, mergeable=True
    ),
    Device(id="GPU-c", resource="nvidia.com/gpu", gpu="GPU-c", kind=DeviceKind.WHOLE, memory_mib=81559),
)
CONFIG = replace(
    PluginConfig.of(DEVICES, ["MIG-9"], ["MIG-0"], boot_id="boot"), device_list_strategy=DeviceListStrategy.CDI_CRI
)


@pytest.fixture
def files(tmp_path: Path) -> PluginFiles:
    found = PluginFiles(tmp_path)
    found.directory.mkdir()
    return found


def accepted(reader: str, path: Path) -> dict[str, Any]:
    """The content of a file that the earlier reader takes."""
    content: dict[str, Any] = json.loads(path.read_text())
    Draft202012Validator(READERS[reader]).validate(content)
    return content


def earlier_hash(content: dict[str, Any]) -> str:
    """As the earlier plugin computes it from the fields that it knows: another hash is a file that it refuses."""
    known = ("id", "resource", "gpu", "kind", "memoryMiB", "threadPercent", "mergeable")
    body = {
        "devices": [{name: device[name] for name in known} for device in content["devices"]],
        **{name: content[name] for name in ("withdrawn", "unhealthy", "deviceListStrategy")},
    }
    return hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).hexdigest()[:12]


@pytest.mark.parametrize("node", ["h100", "mps"])
def test_the_agent_reads_what_an_earlier_plugin_wrote(files: PluginFiles, node: str) -> None:
    for path in (files.loaded, files.ledger):
        path.write_text((EARLIER / node / path.name).read_text())

    loaded, ledger = read_loaded(files), read_ledger(files)

    assert isinstance(loaded, Loaded)
    assert all(loaded.registered.values())
    assert isinstance(ledger, tuple)
    assert {entry.id for entry in ledger} == {device["id"] for device in devices_of(node)}


def devices_of(node: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EARLIER / node / "config.json").read_text())["devices"]
    return found


def test_an_earlier_plugin_takes_what_the_agent_writes_for_it(files: PluginFiles) -> None:
    write_config(files, CONFIG)

    content = accepted("config", files.config)
    assert content["hash"] == earlier_hash(content)


@pytest.mark.parametrize("node", ["h100", "mps"])
def test_the_plugin_takes_what_an_earlier_agent_wrote(files: PluginFiles, node: str) -> None:
    files.config.write_text((EARLIER / node / "config.json").read_text())

    config = read_config(files)

    assert isinstance(config, PluginConfig)
    assert [device.id for device in config.advertised()] == [device["id"] for device in devices_of(node)]
    assert config.device_list_strategy is DeviceListStrategy.ENVVAR
    loaded = json.loads((EARLIER / node / "loaded.json").read_text())
    assert config.hash == loaded["hash"], "what the earlier agent compares"


def test_an_earlier_agent_reads_what_the_plugin_writes(files: PluginFiles) -> None:
    problem = Problem(message="m", gpu="GPU-a")
    write_loaded(
        files,
        Loaded(
            hash=CONFIG.hash,
            boot_token="t",
            registered={"nvidia.com/gpu": True},
            errors=(problem,),
            mps_root="/run/gpuplan/mps",
        ),
    )
    write_ledger(files, [Allocation(id="MIG-0", resource="nvidia.com/mig-3g.40gb", at=1.0)])

    accepted("loaded", files.loaded)
    accepted("ledger", files.ledger)


@pytest.mark.parametrize("node", ["h100", "mps"])
def test_the_agent_remembers_what_an_earlier_one_did(tmp_path: Path, node: str) -> None:
    path = tmp_path / "holdings.json"
    path.write_text((EARLIER / node / path.name).read_text())

    Holdings(path, clock=Clock(), slack_seconds=5.0)

    assert path.exists(), "a file that cannot be read would be put aside"
    accepted("holdings", path)


def test_the_agent_goes_on_from_an_earlier_journal_and_back(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.journal.mkdir(parents=True)
    file = state.journal / f"{GPU}.json"
    file.write_text((EARLIER / "h100/journal/journal.json").read_text())
    journal = Journal(state.journal)

    (intent,) = journal.intents(GPU)
    assert (intent.action, intent.placed) == (Action.DESTROY, PLACED)

    journal.begin(GPU, Intent(action=Action.CREATE, placed=replace(PLACED, start=0), spec_version=("uid", 4)))
    assert len(accepted("journal", file)["intents"]) == 2
