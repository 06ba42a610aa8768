"""Columns of nodes."""

from collections.abc import Callable
from typing import Final

from sandbox.apiserver.objects import Obj, dig, mappings, meta
from sandbox.apiserver.tables.columns import AGE, NAME, Column

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"


def _status(node: Obj) -> str:
    ready = [c for c in mappings(dig(node, "status", "conditions")) if c.get("type") == "Ready"]
    words = ["Unknown" if not ready else "Ready" if ready[0].get("status") == "True" else "NotReady"]
    if dig(node, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Obj) -> str:
    labels = meta(node).get("labels") or {}
    found = {name.removeprefix(_ROLE_PREFIX) for name in labels if name.startswith(_ROLE_PREFIX)}
    return ",".join(sorted(filter(None, found))) or "<none>"


def _address(type_: str) -> Callable[[Obj], str]:
    def cell(node: Obj) -> str:
        found = (a.get("address", "") for a in mappings(dig(node, "status", "addresses")) if a.get("type") == type_)
        return next(found, "") or "<none>"

    return cell


def _info(field: str, missing: str = "<unknown>") -> Callable[[Obj], str]:
    return lambda node: dig(node, "status", "nodeInfo", field) or missing


COLUMNS: Final = (
    NAME,
    Column(name="Status", cell=_status),
    Column(name="Roles", cell=_roles),
    AGE,
    Column(name="Version", cell=_info("kubeletVersion", "")),
    Column(name="Internal-IP", priority=1, cell=_address("InternalIP")),
    Column(name="External-IP", priority=1, cell=_address("ExternalIP")),
    Column(name="OS-Image", priority=1, cell=_info("osImage")),
    Column(name="Kernel-Version", priority=1, cell=_info("kernelVersion")),
    Column(name="Container-Runtime", priority=1, cell=_info("containerRuntimeVersion")),
)
