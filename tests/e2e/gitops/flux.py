"""Flux's kustomize-controller on a real control plane, with a stand-in for its source-controller.

Takes the program, a cluster and a folder; `commit` offers files as the artifact of a GitRepository, by a server on
loopback. The controller runs as an administrator, serves metrics and health on loopback only, and ends with `close`.
"""

import hashlib
import io
import tarfile
import threading
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kube import apply
from sandbox.ports import LOOPBACK, HeldPort
from tests.e2e.real_cluster import CRDS, MERGE, RealCluster, call
from tests.e2e.rig.controlplane.part import Part

NAMESPACE = "flux-system"
SOURCES = {"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets"}
KUSTOMIZATION = "kustomizations"
KUSTOMIZE_GROUP, SOURCE_GROUP = "kustomize.toolkit.fluxcd.io", "source.toolkit.fluxcd.io"
Json = dict[str, Any]


class Flux:
    """Start with `start`, end with `close`."""

    def __init__(self, program: Path, cluster: RealCluster, folder: Path) -> None:
        self._cluster = cluster
        self._artifacts = folder / "artifacts"
        self._artifacts.mkdir()
        handler = partial(_Quiet, directory=str(self._artifacts))
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._metrics, self._health = HeldPort(), HeldPort()
        config = folder / "flux.kubeconfig"
        config.write_text(cluster.plane.kubeconfig())
        command = [
            "/usr/bin/env",
            f"KUBECONFIG={config}",
            f"RUNTIME_NAMESPACE={NAMESPACE}",
            str(program),
            f"--metrics-addr={LOOPBACK}:{self._metrics.number}",
            f"--health-addr={LOOPBACK}:{self._health.number}",
            "--enable-leader-election=false",
            "--requeue-dependency=2s",
        ]
        log = folder / "kustomize-controller.log"
        self._part = Part("kustomize-controller", command, log=log, ready=lambda: True)

    def start(self) -> None:
        """With the kinds that it reads; their schemas are Flux's own business."""
        for group, kinds in ((SOURCE_GROUP, SOURCES), (KUSTOMIZE_GROUP, {"Kustomization": KUSTOMIZATION})):
            for kind, plural in kinds.items():
                apply.create(self._cluster.admin, CRDS, _crd(group, kind, plural))
                wait = ("wait", "--for=condition=Established", f"crd/{plural}.{group}")
                self._cluster.kubectl(*wait, "--timeout=60s", check=True)
        self._cluster.kubectl("create", "namespace", NAMESPACE, check=True)
        self._thread.start()
        self._part.start()

    def close(self) -> None:
        self._part.stop()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for port in (self._metrics, self._health):
            port.close()

    def commit(self, repository: str, files: Mapping[str, str]) -> None:
        """The files as the newest revision of a GitRepository."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            for name, text in sorted(files.items()):
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        digest = hashlib.sha256(content.getvalue()).hexdigest()
        (self._artifacts / f"{digest}.tar.gz").write_bytes(content.getvalue())
        artifact = {
            "digest": f"sha256:{digest}",
            "path": f"{digest}.tar.gz",
            "url": f"http://{LOOPBACK}:{self._server.server_port}/{digest}.tar.gz",
            "revision": f"main@sha1:{digest[:40]}",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }
        collection = f"/apis/{SOURCE_GROUP}/v1/namespaces/{NAMESPACE}/gitrepositories"
        body = {
            "apiVersion": f"{SOURCE_GROUP}/v1",
            "kind": "GitRepository",
            "metadata": {"name": repository},
            "spec": {"url": "https://git.example.com/none.git", "interval": "1h"},
        }
        call(self._cluster.admin, "POST", collection, body)  # there already, from the second commit on
        status = {"artifact": artifact, "observedGeneration": 1, "conditions": []}
        answer = call(self._cluster.admin, "PATCH", f"{collection}/{repository}/status", {"status": status}, MERGE)
        assert answer.allowed, answer.message

    def create(self, kustomization: Json) -> None:
        apply.create(self._cluster.admin, self._path(), kustomization)

    def reconcile(self, name: str, token: str) -> None:
        """As `flux reconcile kustomization` requests it."""
        annotations = {"reconcile.fluxcd.io/requestedAt": token}
        call(self._cluster.admin, "PATCH", f"{self._path()}/{name}", {"metadata": {"annotations": annotations}}, MERGE)

    def has_handled(self, name: str, token: str) -> bool:
        """Whether the reconciliation that was requested with this token is done."""
        return bool(self._status(name).get("lastHandledReconcileAt") == token)

    def ready(self, name: str) -> tuple[str, str]:
        """Status of the condition Ready for the newest revision, and its message."""
        status = self._status(name)
        for one in status.get("conditions", []):
            if one["type"] == "Ready":
                return str(one["status"]), f"{one['reason']}: {one['message']}"
        return "", ""

    def tail(self) -> str:
        """The end of the controller's log."""
        return self._part.tail()

    def _status(self, name: str) -> Json:
        found: Json = apply.get(self._cluster.admin, f"{self._path()}/{name}").get("status", {})
        return found

    @staticmethod
    def _path() -> str:
        return f"/apis/{KUSTOMIZE_GROUP}/v1/namespaces/{NAMESPACE}/{KUSTOMIZATION}"


class _Quiet(SimpleHTTPRequestHandler):
    def log_request(self, *_: object) -> None:
        """Keep standard error for the tests."""


def _crd(group: str, kind: str, plural: str) -> Json:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
