"""Completes and checks every written object: priority classes, decoding, pruning, validation.

Takes an object as the client sent it and returns it as it would be stored, or the error of a real server: 400 for what
cannot be decoded or, under fieldValidation=Strict, for unknown fields; 422 for what breaks the schema, a CEL rule or a
rule of its kind. Must never store.
"""

from typing import Any, Final

from sandbox.apiserver.admission.kinds import rules_of
from sandbox.apiserver.admission.metadata import check_metadata
from sandbox.apiserver.errors import ApiError, FieldError, bad_request, forbidden, invalid, wrong
from sandbox.apiserver.lifecycle.context import Cluster, WriteOptions
from sandbox.apiserver.objects import MISSING, Obj, encode, meta
from sandbox.apiserver.resources.definitions import established
from sandbox.apiserver.resources.resource import CustomForm, Resource
from sandbox.apiserver.schema.conform import Pruner, decode_errors
from sandbox.apiserver.schema.validation import NOT_CHECKED, blocks_rules, validate, validate_status

PRIORITY_CLASSES: Final = ("scheduling.k8s.io", "priorityclasses")


def settle_priority(cluster: Cluster, resource: Resource, obj: Obj) -> Obj:
    """A pod's priority is its class's value, or the default class's."""
    if (resource.group, resource.kind) != ("", "Pod"):
        return obj
    classes = cluster.store.collection(PRIORITY_CLASSES).items
    spec = dict(obj["spec"])
    wanted = spec.get("priorityClassName")
    if wanted:
        found = classes.get(("", wanted))
        if found is None:
            raise forbidden(resource, meta(obj)["name"], f"no PriorityClass with name {wanted} was found")
        chosen = found.obj
    else:
        defaults = [entry.obj for entry in classes.values() if entry.obj.get("globalDefault")]
        if not defaults:
            return obj
        chosen = min(defaults, key=lambda candidate: (candidate.get("value", 0), meta(candidate)["name"]))
        spec["priorityClassName"] = meta(chosen)["name"]
    spec["priority"] = chosen.get("value", 0)
    if chosen.get("preemptionPolicy"):
        spec["preemptionPolicy"] = chosen["preemptionPolicy"]
    return {**obj, "spec": spec}


def settle_definition(cluster: Cluster, resource: Resource, obj: Obj) -> Obj:
    """A CRD that is accepted is served at once."""
    return established(obj, cluster.now()) if resource.kind == "CustomResourceDefinition" else obj


def check_type(resource: Resource, obj: Any) -> Obj:
    """The body must be an object of this kind; builtin kinds may leave apiVersion and kind out."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    for field, title in (("kind", "Kind"), ("apiVersion", "apiVersion")):
        if resource.custom is not None and not obj.get(field):
            shown = encode(obj).decode()
            why = f"Object '{title}' is missing in '{shown}'"
            raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {why}")
    version, kind = obj.get("apiVersion") or resource.api_version, obj.get("kind") or resource.kind
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind and resource.custom is None:
        raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): it is a {kind}")
    if kind != resource.kind:
        problem = wrong("kind", kind, f"must be {resource.kind}")
        raise invalid(resource.group, kind, meta(obj).get("name", ""), [problem])
    return {"apiVersion": version, "kind": kind, "metadata": {}, **obj}


def conform(resource: Resource, obj: Obj, old: Obj | None, options: WriteOptions, *, applied: bool = False) -> Obj:
    """Prune and default; unknown fields are an error, a warning or nothing, as the request asks."""
    schema = resource.schema
    if schema is None:
        return obj
    if resource.custom is None:
        problems = decode_errors(obj, schema, old)
        if problems:
            kind, version = resource.kind, resource.version
            raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {problems[0]}')
    pruner = Pruner(keep_nulls=applied and resource.custom is not None)
    conformed: Obj = pruner.conform(obj, schema, trusted=old if old is not None else MISSING)
    unknown = pruner.unknown if resource.custom is None else sorted(pruner.unknown)
    if unknown and options.field_validation == "Strict":
        raise strict_decoding_error(resource, unknown)
    if options.field_validation == "Warn":
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)
    return conformed


def strict_decoding_error(resource: Resource, unknown: list[str]) -> ApiError:
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    kind, version = resource.kind, resource.version
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {listed}')


def check(resource: Resource, obj: Obj, old: Obj | None, subresource: str = "") -> None:
    """Raise 422 with everything that is wrong."""
    errors = check_metadata(resource, obj, old)
    if resource.custom is not None:
        errors += _check_custom(resource.custom, obj, old, subresource, errors)
    else:
        errors += rules_of(resource).check(obj, old)
    if errors:
        raise invalid(resource.group, resource.kind, meta(obj).get("name", ""), errors)


def _check_custom(
    form: CustomForm, obj: Obj, old: Obj | None, subresource: str, before: list[FieldError]
) -> list[FieldError]:
    """The schema first; the rules only where the object has the right shape."""
    if subresource == "status" and old is not None:
        found = validate_status(obj, form.schema, old)
    else:
        found = validate(obj, form.schema, old if old is not None else MISSING)
    if not form.rules.any:
        return found
    if blocks_rules([*before, *found]):
        return [*found, NOT_CHECKED]
    return found + form.rules.check(obj, old if old is not None else MISSING)
