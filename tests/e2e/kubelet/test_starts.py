"""Rules 10 and 17: what happens on a container's restart, and what it gets from several plugins."""

from kube.kubelet_api import deviceplugin_pb2 as api
from tests.e2e.kubelet.bench import KubeletSide, Raw, container, pod


def crashing(bench: KubeletSide, sleep: float = 0.5) -> Raw:
    """A pod whose container ends and is started again for as long as the test runs."""
    looped = container(devices={bench.resource: 1}, sleep=sleep)
    return pod(looped, restart_policy="Always", script={"restarts": "99", "exit-code": "1"})


def test_a_restart_calls_no_allocate(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    raw = bench.create(crashing(bench))
    bench.wait(lambda: bench.restarts(raw) >= 1, "a restart")
    assert plugin.allocated == [["a"]]


def test_a_restart_needs_no_living_plugin(bench: KubeletSide) -> None:
    plugin = bench.plugin("a")
    raw = bench.run(crashing(bench, sleep=3))
    before = bench.containers(raw)[0]
    plugin.stop()
    bench.wait(lambda: bench.offered() == [], "the plugin is dead")
    bench.wait(lambda: len(bench.containers(raw)) > 1, "a restart without it")
    again = bench.containers(raw)[-1]
    visible = "NVIDIA_VISIBLE_DEVICES"
    assert (before.options.env[visible], again.options.env[visible]) == ("a", "a"), "the answer is kept"


def test_a_restart_keeps_a_device_that_left_the_list(bench: KubeletSide) -> None:
    plugin = bench.plugin("a", "b", prefers=True)
    plugin.preference = lambda available, size: ["a"]
    raw = bench.run(crashing(bench, sleep=2))
    plugin.offer("b").push()
    bench.wait(lambda: len(bench.containers(raw)) > 1, "a restart without it")
    assert bench.containers(raw)[-1].options.env["NVIDIA_VISIBLE_DEVICES"] == "a"
    assert plugin.allocated == [["a"]]


def test_answers_of_two_plugins_are_merged_and_the_pods_own_environment_wins(bench: KubeletSide) -> None:
    other = f"{bench.resource}-other"
    bench.plugin("a").answer = lambda ids: api.ContainerAllocateResponse(
        envs={"A": "first", "BOTH": "first", "OWN": "first"},
        mounts=[api.Mount(container_path="/p", host_path="/first")],
        cdi_devices=[api.CDIDevice(name="gpuplan.test/gpu=first"), api.CDIDevice(name="gpuplan.test/gpu=both")],
    )
    bench.plugin("s", resource=other).answer = lambda ids: api.ContainerAllocateResponse(
        envs={"B": "second", "BOTH": "second"},
        mounts=[
            api.Mount(container_path="/p", host_path="/second"),
            api.Mount(container_path="/q", host_path="/nowhere", read_only=True),
        ],
        cdi_devices=[api.CDIDevice(name="gpuplan.test/gpu=both")],
    )
    raw = bench.run(pod(container(devices={bench.resource: 1, other: 1}, env={"OWN": "pod"})))

    (seen,) = bench.containers(raw)
    env = seen.options.env
    assert env["BOTH"] in ("first", "second")
    assert {key: env[key] for key in ("A", "B", "OWN")} == {"A": "first", "B": "second", "OWN": "pod"}
    mounts = {mount.container_path: mount for mount in seen.options.mounts}
    assert mounts["/p"].host_path in ("/first", "/second")
    assert (mounts["/q"].host_path, mounts["/q"].read_only) == ("/nowhere", True)
    assert sorted(seen.options.cdi_names) == ["gpuplan.test/gpu=both", "gpuplan.test/gpu=first"]


def test_init_containers_run_first_and_one_after_the_other(bench: KubeletSide) -> None:
    init = (container("i1", sleep=0.1), container("s", restartPolicy="Always"), container("i2", sleep=0.1))
    raw = bench.run(pod(container("x", sleep=0.1), container("y", sleep=3), init=init), "Succeeded")

    seen = bench.containers(raw)
    assert [each.name for each in seen] == ["i1", "s", "i2", "x", "y"]
    ends = {each.name: each.finished_at or 0.0 for each in seen}
    assert ends["s"] >= ends["y"] >= ends["x"] >= ends["i2"] >= ends["i1"], "the sidecar is stopped last"
    conditions = {c["type"]: (c["status"], c.get("reason")) for c in raw["status"]["conditions"]}
    assert conditions["Initialized"] == ("True", "PodCompleted")
    assert conditions["Ready"] == ("False", "PodCompleted")
