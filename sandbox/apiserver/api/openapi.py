"""Builds OpenAPI v3 as kubectl reads it: for `explain`, and for whether a PATCH takes fieldValidation.

Takes the registry's groups and returns the index and one document per group version. Builtin kinds are described by the
client's models, custom ones by their CRD. Must never depend on objects.
"""

import hashlib
from typing import Any, Final

from sandbox.apiserver.objects import Obj, encode
from sandbox.apiserver.resources import models
from sandbox.apiserver.resources.resource import Groups, Resource
from sandbox.apiserver.schema.structural import GO_STRUCT, OMIT_EMPTY

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
        name = ".".join([*reversed((resource.group or "core.api.k8s.io").split(".")), resource.version, resource.kind])
        schemas[name] = {**_root(resource, schemas), "x-kubernetes-group-version-kind": [gvk]}
    info = {"title": "Kubernetes", "version": "v1.36.0-sandbox"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _operation(action: str, gvk: Obj) -> Obj:
    return {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
        "parameters": _QUERY,
        "responses": {"200": {"description": "OK"}},
    }


def _root(resource: Resource, schemas: Obj) -> Obj:
    if resource.custom is None:
        root: Obj = _published(models.openapi(resource.model), schemas)
        return root
    source = resource.custom.source
    described = models.openapi("V1ConfigMap")["properties"]
    _add_model("V1ObjectMeta", schemas)
    metadata = {"$ref": f"{models.REFERENCE}V1ObjectMeta", "description": "Standard object's metadata."}
    own = {name: described[name] for name in ("apiVersion", "kind")}
    return {**source, "properties": {**source.get("properties", {}), **own, "metadata": metadata}}


def _published(source: Any, schemas: Obj) -> Any:
    """A schema of the models without our own marks; the models it refers to are added to `schemas`."""
    if isinstance(source, list):
        return [_published(item, schemas) for item in source]
    if not isinstance(source, dict):
        return source
    reference = source.get("$ref")
    if isinstance(reference, str):
        _add_model(reference.removeprefix(models.REFERENCE), schemas)
    kept = {name: value for name, value in source.items() if name not in (OMIT_EMPTY, GO_STRUCT)}
    return {name: _published(value, schemas) for name, value in kept.items()}


def _add_model(model: str, schemas: Obj) -> None:
    if model not in schemas:
        schemas[model] = {}  # known before it is filled: models contain themselves
        schemas[model] = _published(models.openapi(model), schemas)
