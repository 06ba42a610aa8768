"""Our device plugin on a real kubelet that runs all the pods it can, through one event of its life after the other.

The test writes what the agent and the supervisor of MPS daemons write. After each event some pods end and as many
come, and kubelet, checkpoint, ledger and containers agree on who has which id: no id is doubled, and none is lost.
"""

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kube import apply
from nodeagent.handover import cdi
from nodeagent.handover.config import (
    Device,
    DeviceKind,
    DeviceListStrategy,
    Loaded,
    PluginConfig,
    PluginFiles,
    read_ledger,
    read_loaded,
    write_config,
)
from nodeagent.handover.mps_state import MpsDaemon, MpsState, hold_mps_lock, write_mps
from nodeagent.handover.seen_free import SeenFree, write_seen_free
from nodeagent.observed.kubelet import Kubelet
from partitioning.resources import mps_resource_gb
from sandbox.supervisor import Supervisor
from tests.e2e.kubelet.bench import PODS, KubeletSide, Raw, container, pod
from tests.e2e.kubelet.nodes import RealKubeletNode

RESOURCE = mps_resource_gb(4)
GPUS = [f"GPU-{number:08d}-1111-2222-3333-444444444444" for number in range(8)]
MOST_PODS = 110  # a kubelet's default
CHURN = 4
PUSHES = 200
IDS = [f"{gpu}::4gb::{number}" for number in range(16) for gpu in GPUS]
FIRST = IDS[:116]


class Life:
    """A plugin of ours at the kubelet of a bench, and the pods with what each holds."""

    def __init__(self, bench: KubeletSide, folder: Path) -> None:
        assert isinstance(bench.node, RealKubeletNode)
        self.bench, self.runtime, self.folder = bench, bench.node.kubelet.runtime, folder
        self.files = PluginFiles(folder / "state")
        self.supervisor = Supervisor(folder)
        self.advertised: tuple[str, ...] = ()
        self.held: dict[str, str] = {}
        """Id by pod."""
        self._kubelet = Kubelet(bench.node.paths.root, clock=time.monotonic, wall_clock=time.time)

    def start(self, name: str) -> None:
        """A plugin process, which is started again whenever it ends."""
        folders = {
            "--state-dir": self.files.directory.parent,
            "--kubelet-dir": self.bench.node.paths.root,
            "--mps-root": self.folder / "mps",
            "--cdi-dir": self.folder,
        }
        words = [str(word) for pair in folders.items() for word in pair]
        self.supervisor.add(name, "nodeagent.device_plugin", words)

    def loaded(self) -> Loaded | None:
        found = read_loaded(self.files)
        return found if isinstance(found, Loaded) else None

    def taken_over_from(self, before: Loaded | None) -> bool:
        """Whether another process serves."""
        now = self.loaded()
        return bool(before and now and now.boot_token != before.boot_token and now.registered.get(RESOURCE))

    def push(self, ids: Iterable[str], unhealthy: Iterable[str] = ()) -> None:
        """Return when the kubelet was sent this list."""
        self.advertised = tuple(sorted(ids))
        config = PluginConfig.of(
            [
                Device(id=id_, resource=RESOURCE, gpu=id_.partition("::")[0], kind=DeviceKind.MPS, memory_mib=3814)
                for id_ in self.advertised
            ],
            unhealthy=unhealthy,
        )
        config = replace(config, device_list_strategy=DeviceListStrategy.CDI_CRI)
        write_config(self.files, config)
        self.bench.wait(lambda: (found := self.loaded()) and found.hash == config.hash, "the list is sent")

    def run(self, count: int) -> None:
        """So many more pods."""
        made = [self.bench.create(pod(container(devices={RESOURCE: 1}))) for _ in range(count)]
        names = {raw["metadata"]["name"] for raw in made}
        self.bench.wait(lambda: names <= {each["metadata"]["name"] for each in self.running()}, f"{count} pods run")

    def running(self) -> list[Raw]:
        pods = apply.get(self.bench.admin, PODS)["items"]
        return [each for each in pods if each["status"].get("phase") == "Running"]

    def end(self, names: Iterable[str]) -> None:
        for name in names:
            apply.delete(self.bench.admin, f"{PODS}/{name}")
            del self.held[name]
        self.bench.wait(lambda: {each["metadata"]["name"] for each in self.running()} == set(self.held), "they end")
        # As the agent does: without the mark a device is in doubt at the next start of kubelet or plugin.
        ledger = read_ledger(self.files)
        assert isinstance(ledger, tuple)
        held = set(self.held.values())
        write_seen_free(
            self.files, SeenFree(allocations={entry.id: entry.at for entry in ledger if entry.id not in held})
        )

    def check(self) -> None:
        """The kubelet has the list, some pods end, others come, and all records agree."""
        self.bench.wait(lambda: self.bench.offered(RESOURCE) == list(self.advertised), "the list is at the kubelet")
        self.bench.wait(
            lambda: self.held.keys() <= self.bench.held().keys(), "the kubelet knows its pods, after a restart"
        )
        self.agree()
        self.end(sorted(self.held)[:CHURN])
        self.run(CHURN)
        self.agree()
        self.bench.wait_numbers(len(self.advertised), len(self.advertised), RESOURCE)

    def agree(self) -> None:
        uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.running()}
        listed = {name: ids for name, ids in self.bench.held().items() if name in uids}
        assert {len(ids) for ids in listed.values()} == {1}
        holders = {name: ids[0] for name, ids in listed.items()}
        assert holders.keys() == uids.keys()
        assert len(set(holders.values())) == MOST_PODS, "no id has two holders"
        assert self.held.items() <= holders.items(), "a pod keeps its id"
        self.held = holders

        of_uid = {uids[name]: id_ for name, id_ in holders.items()}
        checkpoint = {entry.pod_uid: entry.ids for entry in self._kubelet.checkpoint() if entry.pod_uid in of_uid}
        assert checkpoint == {uid: (id_,) for uid, id_ in of_uid.items()}
        given = {each.pod_uid: each.options.cdi_names for each in self.runtime.containers() if each.pod_uid in of_uid}
        assert given == {uid: (cdi.qualified_name(id_),) for uid, id_ in of_uid.items()}
        ledger = read_ledger(self.files)
        assert isinstance(ledger, tuple)
        assert set(holders.values()) <= {entry.id for entry in ledger if entry.resource == RESOURCE}


@pytest.fixture
def life(bench: KubeletSide, tmp_path: Path) -> Iterator[Life]:
    found = Life(bench, tmp_path)
    (tmp_path / cdi.FILE_NAME).write_text(json.dumps({"devices": [{"name": id_} for id_ in IDS]}))
    lock = hold_mps_lock(found.files)
    assert lock is not None
    with lock:
        write_mps(found.files, MpsState(daemons=tuple(MpsDaemon(gpu=gpu, ready=True) for gpu in GPUS)))
        yield found
        found.supervisor.stop()


@pytest.mark.parametrize("bench", ["real"], indirect=True)
def test_no_id_is_doubled_or_lost_in_a_plugins_life(life: Life) -> None:
    life.start("plugin")
    life.push(FIRST)
    life.bench.wait(lambda: life.bench.offered(RESOURCE) == sorted(FIRST), "registered")
    life.run(MOST_PODS)
    life.check()

    free = sorted(set(FIRST) - set(life.held.values()))
    life.push([*(set(FIRST) - set(free[:2])), *IDS[116:]])
    life.check()

    life.bench.restart()
    life.check()

    before, pid = life.loaded(), life.supervisor.children["plugin"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    life.bench.wait(lambda: life.taken_over_from(before), "the plugin is started again")
    life.check()

    before = life.loaded()
    life.start("update")
    newer = life.supervisor.children["update"]
    life.bench.wait(lambda: newer.restarts, "the newer one ends")
    assert "another device plugin runs" in newer.tail()
    life.supervisor.remove("plugin")
    life.bench.wait(lambda: life.taken_over_from(before), "the newer one has taken over")
    life.check()

    used = sorted(life.held.values())
    free = sorted(set(IDS) - set(used))
    for number in range(PUSHES):
        life.push([*used, *free[number % len(free) :]], unhealthy=used[number % len(used) :: 7])
    life.push([*used, *free[3:]])
    life.check()
