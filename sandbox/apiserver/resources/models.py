"""Reads the schemas of the builtin kinds from the models of the official Python client.

Takes a model's name (`V1Pod`) and returns its compiled `Schema`, for strict decoding, server-side apply and defaults of
required scalars. What the models do not say, how lists merge, is in the tables below. Must never validate values.
"""

import datetime
import re
import types
import typing
from functools import cache
from typing import Any, Final

from kubernetes import client
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sandbox.apiserver.objects import MISSING, Obj
from sandbox.apiserver.schema.structural import GO_STRUCT, OMIT_EMPTY, Schema

# Lists that merge by key in server-side apply: by field name, or by (model, field name) where a name means two things.
LIST_KEYS: Final[dict[str | tuple[str, str], tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "schedulingGates": ("name",),
    "resourceClaims": ("name",),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    ("V1Container", "ports"): ("containerPort", "protocol"),
    ("V1ServiceSpec", "ports"): ("port", "protocol"),
    ("V1ServiceAccount", "secrets"): ("name",),
}
SETS: Final = {"finalizers"}
ATOMIC: Final = {
    "V1LabelSelector",
    "V1NodeSelector",
    "V1NodeSelectorTerm",
    "V1ObjectReference",
    "V1LocalObjectReference",
}
ATOMIC_MAPS: Final = {("V1PodSpec", "nodeSelector"), ("V1ServiceSpec", "selector")}
QUANTITIES: Final = {"limits", "requests", "capacity", "allocatable", "overhead", "allocatedResources", "hard", "used"}
# Defaults that list keys need, and fields that Go structs always show.
DEFAULTS: Final[dict[tuple[str, str], Any]] = {
    ("V1ContainerPort", "protocol"): "TCP",
    ("V1ServicePort", "protocol"): "TCP",
    ("V1PodCondition", "lastProbeTime"): None,
    ("V1PodCondition", "lastTransitionTime"): None,
    ("V1NodeCondition", "lastHeartbeatTime"): None,
    ("V1NodeCondition", "lastTransitionTime"): None,
    ("V1ContainerStatus", "lastState"): {},
    ("V1ContainerStatus", "state"): {},
    ("V1NodeStatus", "nodeInfo"): {},
}
MICRO_TIMES: Final = {"acquireTime", "renewTime", "eventTime", "lastObservedTime"}
FREE_FORM: Final = {"default", "example", "fieldsV1", "raw"}


@cache
def _source(model: str) -> Obj:
    """The OpenAPI schema of one model; members that are models themselves are references."""
    cls: type[BaseModel] = getattr(client, model)
    properties: Obj = {}
    required: list[str] = []
    for attribute, field in cls.model_fields.items():
        name = field.serialization_alias or attribute
        properties[name] = _property(model, name, field)
        if field.is_required():
            required.append(name)
    schema: Obj = {
        "type": "object",
        "properties": properties,
        GO_STRUCT: re.sub("^(Core|Events)?V1", "", model),
    }
    if required:
        schema["required"] = required
    if model in ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    if not properties:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _property(model: str, name: str, field: FieldInfo) -> Obj:
    annotation: Any = field.annotation
    schema: Obj = {"x-kubernetes-preserve-unknown-fields": True} if name in FREE_FORM else _type(annotation, name)
    text_map = schema.get("additionalProperties", {}).get("type") == "string"
    if not field.is_required() and (schema.get("type") == "array" or text_map):
        schema[OMIT_EMPTY] = True
    if schema.get("type") == "array":
        keys = LIST_KEYS.get((model, name), LIST_KEYS.get(name))
        if keys:
            schema.update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})
        elif name in SETS:
            schema["x-kubernetes-list-type"] = "set"
    if (model, name) in ATOMIC_MAPS:
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _type(annotation: Any, name: str) -> Obj:
    """An annotation of the models, which use few forms: Optional, List, Dict, scalars and other models."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0], name)
    if origin in (typing.Union, types.UnionType):
        return _union([argument for argument in arguments if argument is not type(None)], name)
    if origin is list:
        return {"type": "array", "items": _type(arguments[0], name)}
    if origin is dict:
        values = {"type": "string", "format": "quantity"} if name in QUANTITIES else _type(arguments[1], name)
        return {"type": "object", "additionalProperties": values}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {"$ref": annotation.__name__}
    return _scalar(annotation, name)


def _union(arguments: list[Any], name: str) -> Obj:
    if len(arguments) == 1:
        return _type(arguments[0], name)
    members = [_type(argument, name).get("type") for argument in arguments]
    if sorted(map(str, members)) == ["integer", "string"]:
        return {"x-kubernetes-int-or-string": True}
    if set(members) == {"string"}:
        return {"type": "string"}
    return {"x-kubernetes-preserve-unknown-fields": True}


def _scalar(annotation: Any, name: str) -> Obj:
    if annotation is datetime.datetime:
        return {"type": "string", "format": "go-micro-time" if name in MICRO_TIMES else "go-time", "nullable": True}
    types_by_class: dict[Any, str] = {str: "string", bytes: "string", int: "integer", bool: "boolean", float: "number"}
    kind = types_by_class.get(annotation)
    return {"type": kind} if kind else {"x-kubernetes-preserve-unknown-fields": True}


_ZERO: Final[dict[str, Any]] = {"string": "", "integer": 0, "boolean": False}


_compiled: dict[str, Schema] = {}


def schema(model: str) -> Schema:
    """The compiled schema. Required scalars get Go's zero value, which is what a real server stores for them."""
    found = _compiled.get(model)
    if found is None:
        found = _compiled[model] = Schema()  # known before it is filled: models contain themselves
        found.fill(_source(model), schema)
        for name, member in found.properties.items():
            default = DEFAULTS.get((model, name), MISSING)
            if default is MISSING and name in found.required and "format" not in member.source:
                default = _ZERO.get(member.type, MISSING)
            if default is not MISSING:
                found.properties[name] = member.with_default(default)
    return found
