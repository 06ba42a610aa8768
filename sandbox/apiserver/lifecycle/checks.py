"""The checks that every written object passes: decoding, pruning, validation.

Comes in: an object as the client wants it. Goes out: the object as it would be stored, or the error of a real server:
400 for what cannot be decoded or, under fieldValidation=Strict, for unknown fields; 422 for what breaks the schema, a
CEL rule or a rule of its kind. Must never store.
"""

from __future__ import annotations

from typing import Any

from sandbox.apiserver.admission.kinds import rules_of
from sandbox.apiserver.admission.metadata import check_metadata
from sandbox.apiserver.errors import ApiError, bad_request, invalid
from sandbox.apiserver.lifecycle.context import WriteOptions
from sandbox.apiserver.objects import MISSING, Obj, meta
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.schema.decoding import decode_errors
from sandbox.apiserver.schema.pruning import Pruner
from sandbox.apiserver.schema.validation import NOT_CHECKED, blocks_rules, validate


def check_type(resource: Resource, obj: Any) -> Obj:
    """The body must be an object of this kind; absent apiVersion and kind are filled in."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise bad_request("the object provided is unrecognized (must be of type " + resource.kind + ")")
    version, kind = obj.get("apiVersion") or resource.api_version, obj.get("kind") or resource.kind
    if version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind != resource.kind:
        group_version = resource.api_version
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"the kind in the data does not match the expected kind {group_version}, Kind={resource.kind}"
        )
    return {"apiVersion": version, "kind": kind, "metadata": {}, **obj}


def conform(resource: Resource, obj: Obj, old: Obj | None, options: WriteOptions) -> Obj:
    """Prune and default; unknown fields are an error, a warning or nothing, as the request asks."""
    schema = resource.schema
    if schema is None:
        return obj
    if resource.custom is None:
        problems = decode_errors(obj, schema, old)
        if problems:
            message = (
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {problems[0]}'
            )
            raise bad_request(message)
    pruner = Pruner()
    conformed: Obj = pruner.conform(obj, schema, trusted=old if old is not None else MISSING)
    if pruner.unknown and options.field_validation == "Strict":
        raise strict_decoding_error(resource, pruner.unknown)
    if options.field_validation == "Warn":
        options.warnings.extend(f'unknown field "{path}"' for path in pruner.unknown)
    return conformed


def strict_decoding_error(resource: Resource, unknown: list[str]) -> ApiError:
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    kind, version = resource.kind, resource.version
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {listed}')


def check(resource: Resource, obj: Obj, old: Obj | None) -> None:
    """Raise 422 with everything that is wrong."""
    errors = check_metadata(resource, obj, old)
    if resource.custom is not None:
        before: Any = old if old is not None else MISSING
        found = validate(obj, resource.custom.schema, before)
        rules = resource.custom.rules
        if rules.any:
            found += [NOT_CHECKED] if blocks_rules(found) else rules.check(obj, before)
        errors += found
    else:
        errors += rules_of(resource).check(obj, old)
    if errors:
        raise invalid(resource.group, resource.kind, meta(obj).get("name", ""), errors)
