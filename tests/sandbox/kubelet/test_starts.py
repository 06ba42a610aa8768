"""Rules 10 and 17: what happens before a container starts, on a restart, and what it gets from several plugins."""

import json
from dataclasses import replace

import pytest

from kube.kubelet_api import deviceplugin_pb2 as api
from sandbox.kubelet.runtime import ContainerState
from tests.sandbox.kubelet.builders import MIG, Raw, container, pod
from tests.sandbox.kubelet.conftest import QUICK, KubeletBench
from tests.waiting import eventually

OTHER = "nvidia.com/gpu-10gb"


def waiting(bench: KubeletBench, raw: Raw) -> tuple[str, str]:
    statuses = bench.api.status(raw).get("containerStatuses") or [{}]
    state = statuses[0].get("state", {}).get("waiting", {})
    return state.get("reason", ""), state.get("message", "")


def test_a_restart_calls_no_allocate(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod(containers=[container(sleep=0.05, devices=1)], annotations={"restarts": "2"}), "Succeeded")

    assert plugin.allocated == [["MIG-0"]]
    assert raw["status"]["containerStatuses"][0]["restartCount"] == 2


def test_a_restart_needs_no_plugin_until_the_grace_period_is_over(bench: KubeletBench) -> None:
    bench.kubelet(timings=replace(QUICK, endpoint_grace_seconds=0.5))
    plugin = bench.plugin("MIG-0")
    raw = bench.run(pod(containers=[container(sleep=0.1, devices=1)], annotations={"restarts": "1000"}))
    plugin.stop()
    eventually(lambda: bench.api.allocatable(MIG) == ("1", "0"), "1/0")
    before = bench.api.status(raw)["containerStatuses"][0]["restartCount"]

    eventually(lambda: bench.api.status(raw)["containerStatuses"][0]["restartCount"] > before, "a restart without it")
    text = f"endpoint not found in cache for a registered resource: {MIG}"
    eventually(
        lambda: waiting(bench, raw) == ("CreateContainerConfigError", text), "starts fail after the grace period"
    )


def test_a_plugin_that_wants_to_is_asked_before_each_start(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", prestart=True)
    bench.run(pod(containers=[container(sleep=0.05, devices=1)], annotations={"restarts": "2"}), "Succeeded")
    assert plugin.pre_started == [["MIG-0"]] * 3


def test_a_refused_start_is_tried_again_and_no_container_runs_before(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", prestart=True)
    plugin.pre_start_error = "a process is left"
    raw = bench.api.add(pod(containers=[container(devices=1)]))
    why = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unavailable desc = a process is left"
    eventually(lambda: waiting(bench, raw) == ("CreateContainerConfigError", why), "the plugin's refusal")
    eventually(lambda: len(plugin.pre_started) > 2, "it is asked again")
    assert bench.runtime.containers() == ()
    plugin.pre_start_error = ""
    bench.wait_phase(raw, "Running")
    assert plugin.allocated == [["MIG-0"]]


def test_a_plugin_that_takes_its_time_before_a_start_holds_up_no_other_pod(bench: KubeletBench) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", prestart=True)
    plugin.may_pre_start.clear()
    bench.api.add(pod(containers=[container(devices=1)]))
    eventually(lambda: plugin.pre_started, "it is asked")
    bench.run(pod("other", containers=[container()]))
    plugin.may_pre_start.set()


@pytest.mark.parametrize("by_force", [False, True])
def test_a_pod_that_is_deleted_while_its_plugin_is_asked_never_starts(bench: KubeletBench, by_force: bool) -> None:
    bench.kubelet()
    plugin = bench.plugin("MIG-0", prestart=True)
    plugin.may_pre_start.clear()
    raw = bench.api.add(pod(containers=[container(devices=1)]))
    eventually(lambda: plugin.pre_started, "it is asked")
    if by_force:
        bench.api.remove(raw["metadata"]["uid"])
    else:
        bench.api.delete(raw)
    plugin.may_pre_start.set()
    eventually(lambda: raw["metadata"]["uid"] not in bench.api.pods, "it is gone")
    bench.run(pod("next", containers=[container(devices=1)]))
    assert [record.request.pod for record in bench.runtime.containers()] == ["next"]


def specify(bench: KubeletBench, *names: str, env: str = "BY=cdi") -> None:
    """A specification of the runtime with these devices."""
    node = {"path": "/dev/x", "type": "c", "major": 195, "minor": 3}
    devices = [{"name": name, "containerEdits": {"env": [env], "deviceNodes": [node]}} for name in names]
    folder = bench.root / "cdi"
    folder.mkdir(exist_ok=True)
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    (folder / "nvidia.json").write_text(json.dumps(document))


def test_cdi_name_that_no_specification_has_keeps_the_container_waiting(bench: KubeletBench) -> None:
    bench.kubelet(timings=QUICK)
    bench.plugin("MIG-0").answer = lambda ids: api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name="nvidia.com/gpu=1")]
    )
    raw = bench.api.add(pod(containers=[container(devices=1) | {"env": [{"name": "BY", "value": "pod"}]}]))
    text = "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=1"
    eventually(lambda: waiting(bench, raw) == ("CreateContainerError", text), "the runtime's error")
    specify(bench, "1")
    bench.wait_phase(raw, "Running")
    (record,) = bench.runtime.containers()
    options = record.request.options
    assert options.env["BY"] == "cdi", "an edit is the last word on a variable"
    assert [(node.path, node.major, node.minor) for node in options.nodes] == [("/dev/x", 195, 3)]


def test_a_container_that_cannot_start_does_not_start_another_twice(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0").answer = lambda ids: api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name="nvidia.com/gpu=1")]
    )
    raw = bench.api.add(pod(containers=[container("a", devices=1), container("b")]))
    eventually(lambda: waiting(bench, raw)[0] == "CreateContainerError", "the first waits")
    specify(bench, "1")
    bench.wait_phase(raw, "Running")
    eventually(lambda: len(bench.runtime.containers()) == 2, "both were started")
    eventually(lambda: all(r.state is ContainerState.RUNNING for r in bench.runtime.containers()), "both run")
    assert sorted(record.request.container for record in bench.runtime.containers()) == ["a", "b"]


def test_answers_of_two_plugins_are_merged_and_the_pods_own_environment_wins(bench: KubeletBench) -> None:
    bench.kubelet()
    specify(bench, "1", env="A=mig")
    bench.plugin("MIG-0").answer = lambda ids: api.ContainerAllocateResponse(
        envs={"A": "mig", "BOTH": "mig", "OWN": "mig"},
        mounts=[api.Mount(container_path="/p", host_path="/mig")],
        cdi_devices=[api.CDIDevice(name="nvidia.com/gpu=1")],
    )
    bench.plugin("S-0", resource=OTHER).answer = lambda ids: api.ContainerAllocateResponse(
        envs={"B": "mps", "BOTH": "mps"},
        mounts=[api.Mount(container_path="/p", host_path="/mps"), api.Mount(container_path="/q", host_path="/q")],
    )
    wanted = container(devices=1, more={OTHER: 1}) | {"env": [{"name": "OWN", "value": "pod"}]}
    bench.run(pod(containers=[wanted]))

    (record,) = bench.runtime.containers()
    options = record.request.options
    assert options.env["BOTH"] in ("mig", "mps")
    assert {key: value for key, value in options.env.items() if key != "BOTH"} == {"A": "mig", "B": "mps", "OWN": "pod"}
    assert {mount.container_path for mount in options.mounts} == {"/p", "/q"}
    assert options.cdi_names == ("nvidia.com/gpu=1",)
    assert record.request.device_ids == {MIG: ("MIG-0",), OTHER: ("S-0",)}


def test_init_containers_run_first_and_one_after_the_other(bench: KubeletBench) -> None:
    bench.kubelet()
    init = [container("i1", sleep=0.05), container("s", restartPolicy="Always"), container("i2", sleep=0.05)]
    raw = bench.run(pod(init=init, containers=[container("a", sleep=0.05), container("b", sleep=0.1)]), "Succeeded")

    records = bench.runtime.containers(raw["metadata"]["uid"])
    assert [record.request.container for record in records] == ["i1", "s", "i2", "a", "b"]
    ends = {record.request.container: record.finished_at or 0.0 for record in records}
    assert ends["s"] >= ends["b"] >= ends["a"] >= ends["i2"] >= ends["i1"], "the sidecar is stopped last"
    conditions = {c["type"]: (c["status"], c.get("reason")) for c in raw["status"]["conditions"]}
    assert conditions["Initialized"] == ("True", "PodCompleted")
    assert conditions["Ready"] == ("False", "PodCompleted")


def test_a_container_that_the_hardware_refuses_is_tried_again(bench: KubeletBench) -> None:
    bench.hooks.refusal = "no device MIG-0 on this machine"
    bench.kubelet()
    bench.plugin("MIG-0")
    raw = bench.api.add(pod())

    eventually(lambda: waiting(bench, raw) == ("RunContainerError", "no device MIG-0 on this machine"), "shown")
    bench.hooks.refusal = None
    bench.wait_phase(raw, "Running")


def test_hooks_see_each_container_come_and_go(bench: KubeletBench) -> None:
    bench.kubelet()
    bench.plugin("MIG-0")
    bench.run(pod("p", containers=[container(sleep=0.05, devices=1)]), "Succeeded")

    assert [(kind, record.request.pod, record.request.options.env) for kind, record in bench.hooks.calls] == [
        ("started", "p", {"NVIDIA_VISIBLE_DEVICES": "MIG-0"}),
        ("stopped", "p", {"NVIDIA_VISIBLE_DEVICES": "MIG-0"}),
    ]
    assert len({record.pid for _, record in bench.hooks.calls}) == 1


def test_conditions_name_what_is_not_there_yet_and_how_it_ended(bench: KubeletBench) -> None:
    bench.kubelet()
    raw = bench.api.add(pod(init=[container("i", sleep=0.3)], containers=[container("a", sleep=0.01)]))
    failing = bench.api.add(pod(containers=[container(sleep=0.01)], annotations={"exit-code": "3"}))

    def condition(which: Raw, kind: str) -> tuple[str, str | None]:
        found = {each["type"]: each for each in bench.api.status(which).get("conditions") or ()}
        return found.get(kind, {}).get("message", ""), found.get(kind, {}).get("reason")

    eventually(lambda: "running" in str(bench.api.status(raw).get("initContainerStatuses")), "i runs")
    assert condition(raw, "Initialized")[0] == "containers with incomplete status: [i]"
    assert "podIP" in bench.api.status(raw)
    bench.wait_phase(failing, "Failed")
    assert condition(failing, "Ready") == ("", "PodFailed")
