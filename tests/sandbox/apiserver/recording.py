"""Random writes of card plans, and what a real API server answered to them.

`python -m tests.sandbox.apiserver.recording KUBECONFIG FILE` plays a fixed sequence against the cluster of a kubeconfig
and writes requests and answers to FILE; `test_recorded.py` plays the same requests against the sandbox. Versions,
times and uids are left out, for they differ from run to run.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from tests.sandbox.apiserver.probe import APPLY, CARDPLANS, DEFINITION_FILE, MERGE, Http
from tests.waiting import eventually

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PLAN = f"{CARDPLANS}/f"
_CHANGING = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "time")
_IDENTITY = {"apiVersion": "conformance.example.com/v1alpha1", "kind": "CardPlan"}


class Writes:
    """A source of random writes to one plan; the same seed gives the same writes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> dict[str, Any]:
        pick = self._random
        kind = pick.random()
        body: dict[str, Any]
        if kind < 0.45:
            body = {**_IDENTITY, "metadata": self._metadata(), "spec": self._spec(whole=False)}
            return self._apply(PLAN, body, ["m1", "m2", "m3"])
        if kind < 0.6:
            body = {"metadata": self._metadata(), "spec": self._spec(whole=False)}
            if pick.random() < 0.3:
                body["spec"][pick.choice(["cards", "mode", "tags", "limits", "planned", "tier"])] = None
            return self._write("PATCH", PLAN, body, MERGE, ["u1", "u2", "m1"])
        if kind < 0.7:
            body = {**_IDENTITY, "metadata": self._metadata(), "spec": self._spec(whole=True)}
            return self._write("PUT", PLAN, body, "application/json", ["u1", "u2"])
        if kind < 0.9:
            body = {**_IDENTITY, "metadata": self._metadata(), "status": self._status()}
            return self._apply(f"{PLAN}/status", body, ["m1", "s2"])
        if kind < 0.97:
            status = self._status() if pick.random() < 0.8 else None
            return self._write("PATCH", f"{PLAN}/status", {"status": status}, MERGE, ["u1"])
        return {"method": "DELETE", "path": PLAN, "body": None, "content_type": "application/json", "query": {}}

    def _apply(self, path: str, body: Any, managers: list[str]) -> dict[str, Any]:
        write = self._write("PATCH", path, body, APPLY, managers)
        if self._random.random() < 0.5:
            write["query"]["force"] = "true"
        return write

    def _write(self, method: str, path: str, body: Any, content_type: str, managers: list[str]) -> dict[str, Any]:
        query = {"fieldManager": self._random.choice(managers)}
        return {"method": method, "path": path, "body": body, "content_type": content_type, "query": query}

    def _card(self, index: int) -> dict[str, Any]:
        if self._random.random() < 0.4:
            return {"index": index, "whole": {}}
        slices = [{"profile": self._random.choice("ab")} for _ in range(self._random.randint(0, 2))]
        return {"index": index, "cut": {"slices": slices}}

    def _spec(self, *, whole: bool) -> dict[str, Any]:
        pick = self._random
        spec: dict[str, Any] = {"nodeName": "f"} if whole or pick.random() < 0.7 else {}
        makers: dict[str, tuple[float, Any]] = {
            "cards": (0.5, lambda: [self._card(index) for index in pick.sample(range(5), pick.randint(0, 4))]),
            "mode": (0.4, lambda: pick.choice(["Auto", "Manual"])),
            "tags": (0.3, lambda: pick.sample(["x", "y", "z"], pick.randint(0, 3))),
            "limits": (0.3, lambda: {key: pick.randint(1, 2) for key in pick.sample("pqr", pick.randint(0, 3))}),
            "planned": (0.3, lambda: {"cards": [{"index": index} for index in range(pick.randint(0, 2))]}),
            "tier": (0.2, lambda: pick.choice(["gold", "standard"])),
            "paused": (0.2, lambda: pick.random() < 0.5),
        }
        for field, (chance, make) in makers.items():
            if pick.random() < chance:
                spec[field] = make()
        return spec

    def _metadata(self) -> dict[str, Any]:
        pick = self._random
        metadata: dict[str, Any] = {"name": "f"}
        if pick.random() < 0.3:
            metadata["labels"] = {key: pick.choice("12") for key in pick.sample("abc", pick.randint(0, 2))}
        if pick.random() < 0.2:
            metadata["annotations"] = {"k": pick.choice("12")}
        if pick.random() < 0.15:
            metadata["finalizers"] = pick.sample(["e.com/a", "e.com/b"], pick.randint(0, 2))
        return metadata

    def _status(self) -> dict[str, Any]:
        pick = self._random
        status: dict[str, Any] = {}
        if pick.random() < 0.6:
            stamp = {"message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            status["conditions"] = [
                {"type": name, "status": pick.choice(["True", "False"]), "reason": pick.choice("RS"), **stamp}
                for name in pick.sample("ABC", pick.randint(0, 3))
            ]
        if pick.random() < 0.4:
            status["cards"] = pick.randint(1, 2)
        if pick.random() < 0.3:
            status["driver"] = pick.choice("ab")
        return status


def play(http: Http, write: dict[str, Any]) -> dict[str, Any]:
    """One write, and what of its answer stays the same from run to run."""
    body = write["body"]
    if write["method"] == "PUT":
        stored = http("GET", PLAN)
        if stored.status == 200:
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": stored.version}}
    answer = http(write["method"], write["path"], body, content_type=write["content_type"], **write["query"])
    if write["method"] == "DELETE":
        http.patch(PLAN, {"metadata": {"finalizers": None}})
    return {"status": answer.status, "body": _lasting(answer.body)}


def _lasting(body: Any) -> Any:
    if body.get("kind") == "Status":
        details = body.get("details") or {}
        causes = sorted(json.dumps(cause, sort_keys=True) for cause in details.get("causes") or [])
        return {"reason": body.get("reason"), "causes": causes, "message": "" if causes else body.get("message")}
    metadata = {name: value for name, value in body["metadata"].items() if name not in _CHANGING}
    entries = [
        {name: value for name, value in entry.items() if name not in _CHANGING}
        for entry in metadata.get("managedFields", [])
    ]
    metadata["managedFields"] = sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True))
    return {**body, "metadata": metadata}


def prepare(http: Http) -> None:
    crd = yaml.safe_load(DEFINITION_FILE.read_text())
    http("DELETE", f"{CRDS}/{crd['metadata']['name']}")
    eventually(lambda: http("GET", f"{CRDS}/{crd['metadata']['name']}").status == 404, "no older definition")
    http("POST", CRDS, crd)
    eventually(lambda: http("GET", CARDPLANS).status == 200, "the definition is served")


def record(kubeconfig: str, file: Path, seed: int = 1, count: int = 250) -> None:
    configuration = client.Configuration()
    load: Any = config.load_kube_config
    load(kubeconfig, client_configuration=configuration)
    http = Http(client.ApiClient(configuration))
    prepare(http)
    writes = Writes(seed)
    sequence = [writes.next() for _ in range(count)]
    steps = [{"write": write, "answer": play(http, write)} for write in sequence]
    http.patch(PLAN, {"metadata": {"finalizers": None}})
    server = http("GET", "/version").body["gitVersion"]
    text = json.dumps({"server": server, "steps": steps}, sort_keys=True)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
