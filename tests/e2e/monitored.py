"""A sandbox with load and faults that a real Prometheus scrapes, with the chart's rules and dashboards.

Takes a folder; starts Prometheus of Debian's package on loopback, scraping controller and agents each second under the
labels that the chart's ServiceMonitors give them. The story of `load`, `want` and `end`: pods come, run and wait, a GPU
is lost, an agent falls silent. Alerts fire after seconds instead of minutes: `hastened` says how.
"""

import json
import os
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from crds.v1alpha1 import paths
from kube import apply
from sandbox.cluster import Cluster, ClusterSettings
from sandbox.ports import HeldPort
from tests.builders import objects
from tests.deploy import alert_cases
from tests.e2e.rig.containers.debian import unpacked
from tests.e2e.rig.controlplane import Missing, Places
from tests.incidents import find_again, lose
from tests.waiting import eventually

ROOT = alert_cases.ROOT
PODS = "/api/v1/namespaces/default/pods"
EXAMPLES = ("mig/cluster.yaml", "mps/cluster.yaml")
HASTENED = (
    ("[5m]", "[10s]"),  # some scrapes and passes of an agent
    ("[10m]", "[10s]"),
    ("[1h]", "[20s]"),
    ("offset 1h", "offset 20s"),
    ("> 4 * 3600", "> 8"),
    ("> 120", "> 15"),  # a heartbeat comes every 10 s
    ('le="60.0"', 'le="5.0"'),
)
"""Times in the rules' expressions and their shorter ones here. Counts, shares, states and labels are the chart's."""
FOR = "2s"
START_SECONDS = 180.0
Json = dict[str, Any]


def prometheus_folder() -> Path | Missing:
    """Of Debian's package; unpacked into the cache, not installed."""
    found = unpacked("debian-prometheus", ("prometheus",), Places.of(os.environ, Path.home()))
    return found if isinstance(found, Missing) else found / "usr/bin"


class Monitored:
    """Use as a context; `folder` is for Prometheus."""

    def __init__(self, folder: Path, programs: Path, cluster: Cluster | None = None) -> None:
        """`cluster`: another one than that of the examples."""
        self._folder, self._programs = folder, programs
        self.cluster = cluster or Cluster(ClusterSettings())
        self._port = HeldPort()
        self._prometheus: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Monitored":
        self.start([body for path in EXAMPLES for body in _objects(path)])
        return self

    def start(self, manifests: Sequence[Json]) -> None:
        """Everything, with these objects."""
        expected = {body["metadata"]["name"] for body in manifests if body["kind"] == "Node"}
        try:
            self.cluster.start(manifests)
            eventually(lambda: self._agents().keys() == expected, "the nodes", START_SECONDS)
            self.scrape()
            self._start_prometheus()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._prometheus is not None:
            self._prometheus.terminate()
            self._prometheus.wait(timeout=30)
        self._port.close()
        self.cluster.stop()

    def _agents(self) -> dict[str, Path]:
        """Settings of the agents by node."""
        nodes = self.cluster.nodes.items()
        return {name: node.agent_settings for name, node in nodes if node.agent_settings.exists()}

    def scrape(self, *, without: Collection[str] = ()) -> None:
        """Let Prometheus scrape what there is, but agents `without` a pod; it reads the file when it changes."""
        agents = [_target(path, node=name) for name, path in sorted(self._agents().items()) if name not in without]
        jobs = {
            "gpuplan-controller": [_target(self.cluster.directory / "controller.yaml", pod="controller-0")],
            "gpuplan-agent": agents,
        }
        for name, targets in jobs.items():
            path = self._folder / f"{name}.json"
            path.with_suffix(".new").write_text(json.dumps(targets))
            path.with_suffix(".new").replace(path)

    def _start_prometheus(self) -> None:
        rules = self._folder / "rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": [{"name": "gpuplan", "rules": hastened()}]}, sort_keys=False))
        config = self._folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config(rules)))
        address = f"127.0.0.1:{self._port.number}"
        command = [
            str(self._programs / "prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._prometheus = subprocess.Popen(command, stdout=log, stderr=log)
        self._url = f"http://{address}"
        eventually(self._is_ready, "Prometheus", seen=lambda: (self._folder / "prometheus.log").read_text()[-2000:])

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _config(self, rules: Path) -> Json:
        return {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": name, "file_sd_configs": [{"files": [str(self._folder / f"{name}.json")]}]}
                for name in ("gpuplan-controller", "gpuplan-agent")
            ],
        }

    def query(self, expr: str) -> list[Json]:
        """The samples of now."""
        return self._ask("query", query=expr)

    def query_range(self, expr: str, *, seconds: float, end: float, step: float) -> list[Json]:
        """The series of the last seconds."""
        return self._ask("query_range", query=expr, start=str(end - seconds), end=str(end), step=str(step))

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        return {labels["alertname"] for labels in self.alerts()}

    def alerts(self) -> list[dict[str, str]]:
        """The labels of each alert that fires now."""
        return [sample["metric"] for sample in self.query('ALERTS{alertstate="firing"}')]

    def _ask(self, path: str, **parameters: str) -> list[Json]:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=30) as answer:
            found: list[Json] = json.load(answer)["data"]["result"]
        return found

    def load(self) -> None:
        """Pods that run, pods that wait for room, and one that no GPU can hold."""
        for raw in _objects("mig/pods.yaml") + _objects("mps/pod.yaml"):
            self.cluster.create(raw)
        self.wait_for_running(8)

    def wait_for_running(self, count: int) -> None:
        eventually(lambda: len(self.running()) >= count, f"{count} running pods", 120, seen=self.running)

    def running(self) -> list[str]:
        """Names of pods, the oldest first."""
        found = [pod["metadata"] for pod in self.cluster.pods() if pod["status"].get("phase") == "Running"]
        return [one["name"] for one in sorted(found, key=lambda one: (one["creationTimestamp"], one["name"]))]

    def want(self, name: str, resource: str) -> None:
        main = objects.container(limits={resource: "1"}, image="busybox", sleep="infinity")
        self.cluster.create(objects.manifest(objects.pod(name, containers=[main]), status=False))

    def end(self, name: str) -> None:
        apply.delete(self.cluster.api, f"{PODS}/{name}", grace_seconds=0)

    def lose_gpu(self, node: str) -> None:
        lose(*self._last_gpu(node))

    def find_gpu_again(self, node: str) -> None:
        find_again(*self._last_gpu(node))

    def _last_gpu(self, node: str) -> tuple[Path, str]:
        path = self.cluster.nodes[node].machine
        return path, json.loads(path.read_text())["gpus"][-1]["uuid"]

    def pause(self, node: str) -> None:
        """As a person does."""
        body = objects.manifest(objects.plan(node, spec={"paused": True}))
        apply.apply(self.cluster.api, f"{paths.PLANS}/{node}", body, manager="person", force=True)

    def silence(self, node: str) -> None:
        """Its agent ends and is not started again."""
        self.cluster.supervisor.remove(self.cluster.nodes[node].agent)


def _objects(path: str) -> list[Json]:
    return [body for body in yaml.safe_load_all((ROOT / "examples" / path).read_text()) if body]


def _target(settings: Path, **labels: str) -> Json:
    port = yaml.safe_load(settings.read_text())["metricsPort"]
    return {"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "gpuplan-system", **labels}}


def hastened() -> list[Json]:
    """The chart's alerts with shorter times."""
    rules = [dict(rule) for rule in alert_cases.alerts().values()]
    for written, short in HASTENED:
        assert any(written in rule["expr"] for rule in rules), f"no alert has {written} any more"
        for rule in rules:
            rule["expr"] = rule["expr"].replace(written, short)
    return [{**rule, "for": FOR} if "for" in rule else rule for rule in rules]
