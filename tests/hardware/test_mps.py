"""MPS slices of a real GPU, from a pending pod to a CUDA program: limits hold, restarts are survived, daemons recover.

The tests follow each other on one node, as a day in its life.
"""

import time

import pytest

from nodeagent.hardware.nvml import NvmlDriver
from partitioning.mps import slice_of_gb
from tests.hardware.words import Words
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)
SLICES = {"a": 20, "b": 10, "c": 5}
LIMIT = "get_default_device_pinned_mem_limit 0"
CONTEXT_MIB = 640
"""A CUDA context counts within its slice: 518 MiB were seen on an H100 with all multiprocessors."""


def test_pending_pods_get_slices_whose_limits_hold(words: Words) -> None:
    for name, size in SLICES.items():
        words.create(name, f"nvidia.com/gpu-{size}gb", most_mib=2 * 1024 * size)
    for name, size in SLICES.items():
        seen, limit = words.client(name), slice_of_gb(size).memory_mib
        words.report(f"slice of {size} GB ({limit} MiB): {seen}")
        assert seen["refused"] == "CUDA_ERROR_OUT_OF_MEMORY"
        assert limit - CONTEXT_MIB <= seen["allocatedMiB"] <= limit
    server = words.control("get_server_list").split()
    assert len(server) == 1
    assert len(words.control(f"get_client_list {server[0]}").split()) == len(SLICES)
    driver = NvmlDriver()
    clients = [process for process in driver.processes(driver.observe_gpu(0)) if process.mps_client]
    driver.release()
    assert len(clients) == len(SLICES)


@pytest.mark.parametrize("part", ["agent", "plugin", "mps"])
def test_a_killed_program_costs_no_client_anything(words: Words, part: str) -> None:
    daemon = words.daemon_pid()
    words.restart(part)
    words.create(f"after-{part}", "nvidia.com/gpu-5gb")
    assert words.client(f"after-{part}")["devices"] == 1
    assert words.daemon_pid() == daemon
    assert all(len(words.node.clients.lines(name)) == 1 for name in SLICES)
    words.delete(f"after-{part}")


def test_what_root_in_a_container_changes_is_set_back(words: Words) -> None:
    """The daemon refuses an ordinary user, and obeys root in a container."""
    before, began = words.control(LIMIT), time.monotonic()
    words.control("set_default_device_pinned_mem_limit 0 1M")
    assert words.control(LIMIT) != before
    eventually(lambda: words.control(LIMIT) == before, "the default limit is set back")
    words.report(f"default limit {before.strip()} set back {time.monotonic() - began:.1f} s after it was changed")
    eventually(lambda: "was changed" in str(words.plan()["status"]), "the plan says so", seen=words.state)


def test_a_killed_daemon_is_started_again(words: Words) -> None:
    seconds = words.kill_daemon()
    eventually(lambda: all("lost" in words.last_line(name) for name in SLICES), "its clients lost their server")
    words.report(f"daemon killed: it answers after {seconds:.1f} s, its clients got {words.last_line('a')['lost']}")
    words.delete(*SLICES)
    words.create("again", "nvidia.com/gpu-10gb")
    assert words.client("again")["devices"] == 1
    words.delete("again")


@pytest.mark.parametrize("percent", [10, 25, 50])
def test_a_client_sees_its_share_of_the_multiprocessors(words: Words, percent: int) -> None:
    words.pin([{"memoryGB": 30, "threadPercent": percent}])
    pod = f"share-{percent}"
    words.create(pod, "nvidia.com/gpu-30gb")
    seen = words.client(pod)
    words.report(f"threadPercent {percent}: {seen['multiprocessors']} multiprocessors, {seen['freeMiB']} MiB free")
    assert 0 < seen["multiprocessors"] <= 132 * percent // 100 + 8  # rounded up to a whole group of them
    words.delete(pod)


def test_the_whole_gpu_after_its_slices(words: Words) -> None:
    words.pin(None)
    began = time.monotonic()
    words.create("whole", "nvidia.com/gpu", most_mib=words.memory_mib // 2)
    seen = words.client("whole")
    words.report(f"whole GPU after {time.monotonic() - began:.1f} s: {seen}")
    assert seen["refused"] == ""
    eventually(lambda: "Cannot find" in words.control("get_server_list"), "the daemon has ended")
    words.delete("whole")


def test_no_mode_of_the_gpu_was_changed(words: Words) -> None:
    driver = NvmlDriver()
    found = driver.observe_gpu(0)
    driver.release()
    modes = (found.mig_mode, found.mig_mode_pending, found.compute_mode)
    assert modes == (words.gpu.mig_mode, words.gpu.mig_mode_pending, words.gpu.compute_mode)
