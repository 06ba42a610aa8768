"""The chart as helm renders it with given values, and what it mounts into its containers."""

import hashlib
from pathlib import Path
from typing import Any

from deploy.generate import manifests
from tests.e2e.rig.controlplane.tenants import objects_of

Json = dict[str, Any]


class Rendered:
    """What the chart makes of these values."""

    def __init__(self, helm: Path, folder: Path, text: str = "", namespace: str = manifests.NAMESPACE) -> None:
        given = folder / f"values-{hashlib.sha256(text.encode()).hexdigest()[:8]}.yaml"
        given.write_text(text)
        done = manifests.template(helm, "--namespace", namespace, "--values", str(given))
        self.refusal = done.stderr if done.returncode else ""
        self.objects = list(objects_of(done.stdout))
        self._folder = folder

    def all(self, kind: str) -> list[Json]:
        return [body for body in self.objects if body["kind"] == kind]

    def one(self, kind: str, name: str) -> Json:
        (found,) = [body for body in self.all(kind) if body["metadata"]["name"] == name]
        return found

    def pod(self, kind: str, name: str) -> Json:
        spec: Json = self.one(kind, name)["spec"]["template"]["spec"]
        return spec

    def arguments(self, kind: str, name: str) -> list[str]:
        """The container's, with the mounted settings where they were written here."""
        (container,) = self.pod(kind, name)["containers"]
        return [word.replace("/etc/gpuplan", str(self.mounted(name))) for word in container["args"]]

    def mounted(self, name: str) -> Path:
        """The ConfigMap as the kubelet mounts it."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        for file, text in self.one("ConfigMap", name)["data"].items():
            (folder / file).write_text(text.replace("/etc/gpuplan", str(folder)))
        return folder
