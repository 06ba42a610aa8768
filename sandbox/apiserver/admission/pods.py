"""Completes and checks pods as the API server does.

Takes a pod of a client and returns it with the defaults of its form (above all, requests taken from limits) and the
first status; returns FieldErrors for what cannot run, and for changes of fields that are fixed once a pod exists.
"""

from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver.errors import FieldError, forbidden_field, required, wrong
from sandbox.apiserver.objects import Obj, dig, mappings

_SPEC_DEFAULTS: Final[Obj] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "enableServiceLinks": True,
}
_TOLERATED_FOR_300_SECONDS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MUTABLE_SPEC: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")
_CONTAINERS: Final = ("initContainers", "containers")


def default(pod: Obj) -> Obj:
    """The scheme's defaults. A spec that is complete already is given back as it is."""
    spec = pod.get("spec") or {}
    filled = {**_SPEC_DEFAULTS, **spec}
    for field in _CONTAINERS:
        if spec.get(field):
            filled[field] = [_container(container) for container in spec[field]]
    return pod if filled == spec else {**pod, "spec": filled}


def _container(container: Obj) -> Obj:
    image = container.get("image") or ""
    tagged = ":" in image.rpartition("/")[2] and not image.endswith(":latest")
    filled = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent" if tagged or "@" in image else "Always",
        **container,
    }
    limits = dig(filled, "resources", "limits") or {}
    requests = dig(filled, "resources", "requests") or {}
    if any(name not in requests for name in limits):
        filled["resources"] = {**filled["resources"], "requests": {**limits, **requests}}
    return filled


def prepare(pod: Obj) -> Obj:
    """What admission sets on a new pod, and its first status."""
    spec = dict(pod["spec"])
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = list(spec.get("tolerations") or [])
    for key in _TOLERATED_FOR_300_SECONDS:
        if not any(t.get("key") in (key, None, "") and t.get("effect") in ("NoExecute", None, "") for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


def check(pod: Obj, old: Obj | None) -> list[FieldError]:
    spec = pod.get("spec") or {}
    if old is None:
        return list(_check_spec(spec))
    before = old.get("spec") or {}
    return [] if spec is before else list(_check_change(spec, before))


def _check_spec(spec: Obj) -> Iterator[FieldError]:
    if not spec.get("containers"):
        yield required("spec.containers")
    names: set[str] = set()
    for field in _CONTAINERS:
        for index, container in enumerate(mappings(spec.get(field))):
            path = f"spec.{field}[{index}]"
            name = container.get("name")
            if not name:
                yield required(f"{path}.name")
            elif name in names:
                yield FieldError(path=f"{path}.name", reason="FieldValueDuplicate", value=name)
            names.add(name or "")
            if not container.get("image"):
                yield required(f"{path}.image")
            yield from _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_resources(resources: Obj, path: str) -> Iterator[FieldError]:
    """Extended resources come whole, and cannot be requested beyond their limit or below it."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for word, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if is_extended(name) and not str(amount).isdigit():
                yield wrong(f"{path}.{word}[{name}]", amount, "must be an integer")
    for name, amount in requests.items():
        if not is_extended(name):
            continue
        if name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif limits[name] != amount:
            yield wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}")


def is_extended(name: str) -> bool:
    """Resources outside kubernetes.io, such as nvidia.com/gpu."""
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _check_change(spec: Obj, before: Obj) -> Iterator[FieldError]:
    """Only images, deadlines, added tolerations and removed scheduling gates may change; the binding sets the node."""
    if any(toleration not in (spec.get("tolerations") or []) for toleration in before.get("tolerations") or []):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", detail)
    if _fixed(spec) != _fixed(before):
        detail = (
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        yield forbidden_field("spec", detail)


def _fixed(spec: Obj) -> dict[str, Any]:
    fixed = {name: value for name, value in spec.items() if name not in _MUTABLE_SPEC}
    for field in _CONTAINERS:
        fixed[field] = [{**container, "image": ""} for container in mappings(spec.get(field))]
    return fixed
