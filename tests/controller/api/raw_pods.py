"""Pods of one container with requests by short names, and the views read from them."""

from typing import Any

from controller.api.pods import read_pod
from controller.model.views import PodView

Json = dict[str, Any]


SLICE = "nvidia.com/mig-1g.10gb"


def container(name: str = "main", **requests: str) -> Json:
    names = {"cpu": "cpu", "memory": "memory", "mig": SLICE, "mps": "nvidia.com/gpu-10gb"}
    return {"name": name, "resources": {"requests": {names[key]: value for key, value in requests.items()}}}


def pod(spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    return {
        "metadata": {"namespace": "default", "name": "p", "uid": "u-1", **metadata},
        "spec": {"containers": [container(mig="1")], **(spec or {})},
        "status": status or {},
    }


def view(raw: Json) -> PodView:
    read = read_pod(raw)
    assert isinstance(read, PodView)
    return read
