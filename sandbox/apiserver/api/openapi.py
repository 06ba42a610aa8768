"""Builds OpenAPI v3 as kubectl reads it: for `explain`, and for whether a PATCH takes fieldValidation.

Takes the registry's groups and returns the index and one document per group version. A custom kind is described by its
CRD; of builtin ones only the operations are. Must never depend on objects.
"""

import hashlib
from typing import Final

from sandbox.apiserver.objects import Obj, encode
from sandbox.apiserver.resources.resource import Groups, Resource

_QUERY: Final = [
    *({"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldManager")),
    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
    {"name": "force", "in": "query", "schema": {"type": "boolean"}},
]


def index(groups: Groups) -> Obj:
    """Where each document is; the hash lets kubectl keep it."""
    found: Obj = {}
    for group, versions in groups.items():
        for version, resources in versions.items():
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            forms = [(resource.kind, resource.custom.source if resource.custom else "") for resource in resources]
            digest = hashlib.sha256(encode(forms)).hexdigest()[:32].upper()
            found[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": found}


def document(resources: list[Resource]) -> Obj:
    """One group version."""
    paths: Obj = {}
    schemas: Obj = {}
    for resource in resources:
        base = f"{resource.prefix}/namespaces/{{namespace}}" if resource.namespaced else resource.prefix
        gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        collection, item = f"{base}/{resource.plural}", f"{base}/{resource.plural}/{{name}}"
        paths[collection] = {"get": _operation("list", gvk), "post": _operation("post", gvk)}
        paths[item] = {name: _operation(name, gvk) for name in ("get", "put", "patch", "delete")}
        if resource.custom is not None:
            name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
            schemas[name] = {**_described(resource.custom.source), "x-kubernetes-group-version-kind": [gvk]}
    info = {"title": "Kubernetes", "version": "v1.36.0-sandbox"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _operation(action: str, gvk: Obj) -> Obj:
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "parameters": _QUERY,
        "responses": {"200": {"description": "OK"}},
    }


def _described(source: Obj) -> Obj:
    """A custom kind's schema, with what every object has."""
    every = {name: {"type": "string"} for name in ("apiVersion", "kind")} | {"metadata": {"type": "object"}}
    return {**source, "properties": {**source.get("properties", {}), **every}}
