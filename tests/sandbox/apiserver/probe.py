"""Tools of the API server's tests: plain HTTP, the real kubectl, and plans of the test's own kind."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client

NAMESPACE = "gpuplan-conformance"
GROUP = "/apis/conformance.example.com/v1alpha1"
CARDPLANS = f"{GROUP}/cardplans"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEFINITION_FILE = Path(__file__).with_name("cardplans.yaml")
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status code, the decoded body and the headers."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Http:
    """Plain requests with the credentials of a kubeconfig."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self.url = api_client.configuration.host
        self._pool = api_client.rest_client.pool_manager
        self._headers = {"User-Agent": "conformance/1"}
        api_client.update_params_for_auth(self._headers, [], ["BearerToken"], "/", "GET", None)

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Answer:
        headers = {**self._headers, "Accept": accept, "Content-Type": content_type}
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        response = self._pool.request(
            method, self._address(path, query), body=data, headers=headers, timeout=DEADLINE_SECONDS, retries=False
        )
        try:
            decoded = json.loads(response.data)
        except ValueError:
            decoded = response.data.decode()
        return Answer(response.status, decoded, response.headers)

    def close(self) -> None:
        self._pool.clear()

    def _address(self, path: str, query: Mapping[str, Any]) -> str:
        return f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self("PATCH", path, body, content_type=content_type, **query)

    def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        return self("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    def clear(self, path: str) -> None:
        """Delete every object of a collection, but the root certificate that a real cluster restores."""
        for item in self("GET", path).body["items"]:
            if item["metadata"]["name"] != "kube-root-ca.crt":
                self("DELETE", f"{path}/{item['metadata']['name']}", {"gracePeriodSeconds": 0})

    def watch(self, path: str, *, count: int = 1000, accept: str = "application/json", **query: Any) -> list[Any]:
        """The first `count` events, or all until the watch ends."""
        address = self._address(path, {"watch": "1", "timeoutSeconds": "10", **query})
        headers = {**self._headers, "Accept": accept}
        response = self._pool.request(
            "GET", address, headers=headers, timeout=DEADLINE_SECONDS, preload_content=False, retries=False
        )
        events: list[Any] = []
        pending = b""
        try:
            while len(events) < count:
                chunk = response.read1(1 << 16)
                if not chunk:
                    break
                *lines, pending = (pending + chunk).split(b"\n")
                events += [json.loads(line) for line in lines if line.strip()]
        finally:
            response.close()
        return events[:count]


class Kubectl:
    """The real kubectl, the one of this virtual environment."""

    def __init__(self, kubeconfig: Path, cache: Path) -> None:
        self._command = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(kubeconfig)]
        self._command += ["--cache-dir", str(cache)]

    def __call__(self, *arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, f"kubectl {' '.join(arguments)}: exit {done.returncode}: {output}"
        return output

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self._command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@dataclass(frozen=True, slots=True)
class Plans:
    """Card plans by HTTP: the custom resource of these tests."""

    http: Http

    def path(self, name: str, subresource: str = "") -> str:
        return f"{CARDPLANS}/{name}" + (f"/{subresource}" if subresource else "")

    def body(self, name: str, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "conformance.example.com/v1alpha1",
            "kind": "CardPlan",
            "metadata": {"name": name},
            "spec": {"nodeName": name, **spec},
        }

    def create(self, name: str, **spec: Any) -> Any:
        answer = self.http("POST", CARDPLANS, self.body(name, **spec))
        assert answer.status == 201, answer.body
        return answer.body

    def get(self, name: str) -> Any:
        return self.http("GET", self.path(name)).body

    def apply(self, name: str, manager: str, *, metadata: Any = None, **spec: Any) -> Answer:
        body = self.body(name, **spec)
        body["metadata"].update(metadata or {})
        return self.http.apply(self.path(name), body, manager)

    def apply_status(self, name: str, manager: str, status: Any, **query: Any) -> Answer:
        body = {**self.body(name), "status": status}
        del body["spec"]
        return self.http.apply(self.path(name, "status"), body, manager, **query)
