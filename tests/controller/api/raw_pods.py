"""Pods of one container with requests by short names, as the parsers' tests vary them."""

from typing import Any

from tests.builders import objects
from tests.builders.objects import SLICE, Json


def container(name: str = "main", **requests: str) -> Json:
    names = {"cpu": "cpu", "memory": "memory", "mig": SLICE, "mps": "nvidia.com/gpu-10gb"}
    return {"name": name, "resources": {"requests": {names[key]: value for key, value in requests.items()}}}


def pod(spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    """One that requests a MIG slice, with these fields of spec instead of its own."""
    raw = objects.pod(containers=[container(mig="1")], metadata=metadata)
    return raw | {"spec": raw["spec"] | (spec or {}), "status": status or {}}
