"""Evaluates the CEL rules (`x-kubernetes-validations`) of one CRD version, as the API server does.

Takes an object and, on an update, the stored one, and returns one FieldError per failed rule, with the rule's own
message and field path. A rule that mentions `oldSelf` is a transition rule: it is skipped where there is no old value
to compare with. What did not change is not checked again. Rules may be refused at compile time only.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cel
from cel.stdlib import EXTENSIONS

from sandbox.apiserver.errors import FieldError
from sandbox.apiserver.objects import MISSING, Obj
from sandbox.apiserver.schema.structural import Schema
from sandbox.apiserver.schema.validation import item_key

# The libraries of cel-go that Kubernetes gives to rules, as far as there is an implementation.
_LIBRARY: Final[dict[str, Callable[..., Any]]] = {**EXTENSIONS["core"], **EXTENSIONS["strings"]}
_KEYWORDS: Final = {"rule", "message", "reason", "fieldPath"}


class RuleError(ValueError):
    """A rule that cannot be compiled: its path, the rule, and why."""

    def __init__(self, path: str, rule: str, why: str) -> None:
        super().__init__(f"compilation failed: {why}")
        self.path = path
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    program: cel.Program
    source: str
    message: str
    reason: str
    field_path: str
    transition: bool
    functions: dict[str, Callable[..., Any]]


class Rules:
    """All rules below one schema; nodes without any are not visited."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._compiled: dict[int, tuple[_Rule, ...]] = {}
        self._matters: dict[int, bool] = {}
        self._compile(schema, "spec.validation.openAPIV3Schema")

    def _compile(self, schema: Schema, path: str) -> bool:
        rules = tuple(_compile(rule, f"{path}.x-kubernetes-validations[{n}]") for n, rule in enumerate(schema.rules))
        self._compiled[id(schema)] = rules
        below = [self._compile(sub, f"{path}.properties[{name}]") for name, sub in schema.properties.items()]
        if schema.items is not None:
            below.append(self._compile(schema.items, f"{path}.items"))
        if schema.additional is not None:
            below.append(self._compile(schema.additional, f"{path}.additionalProperties"))
        self._matters[id(schema)] = bool(rules) or any(below)
        return self._matters[id(schema)]

    def check(self, value: Any, old: Any = MISSING) -> list[FieldError]:
        """Every failed rule, outermost first."""
        return list(self._walk(value, old, self._schema, ""))

    @property
    def any(self) -> bool:
        return self._matters[id(self._schema)]

    def _walk(self, value: Any, old: Any, schema: Schema, path: str) -> Iterator[FieldError]:
        if not self._matters[id(schema)] or value is None or value is old or (old is not MISSING and value == old):
            return
        for rule in self._compiled[id(schema)]:
            error = _evaluate(rule, value, old, path)
            if error is not None:
                yield error
        if isinstance(value, dict):
            yield from self._members(value, old, schema, path)
        elif isinstance(value, list) and schema.items is not None:
            yield from self._items(value, old, schema, schema.items, path)

    def _members(self, value: Obj, old: Any, schema: Schema, path: str) -> Iterator[FieldError]:
        before = old if isinstance(old, dict) else {}
        for name, member in value.items():
            sub = schema.field(name)
            if sub is not None:
                inner = f"{path}[{name}]" if name not in schema.properties else f"{path}.{name}" if path else name
                yield from self._walk(member, before.get(name, MISSING), sub, inner)

    def _items(self, value: list[Any], old: Any, schema: Schema, items: Schema, path: str) -> Iterator[FieldError]:
        correlated = old if schema.list_type == "map" and isinstance(old, list) else ()
        before = {item_key(item, schema): item for item in correlated}
        for index, item in enumerate(value):
            found = before.get(item_key(item, schema), MISSING)
            yield from self._walk(item, found, items, f"{path}[{index}]")


def _compile(rule: Mapping[str, Any], path: str) -> _Rule:
    source = rule["rule"]
    if unknown := sorted(rule.keys() - _KEYWORDS):
        raise RuleError(f"{path}.{unknown[0]}", source, f"{unknown[0]} is not supported in the sandbox")
    try:
        program = cel.compile(source)
    except ValueError as error:
        raise RuleError(f"{path}.rule", source, str(error)) from error
    return _Rule(
        program=program,
        source=source,
        message=rule.get("message", ""),
        reason=rule.get("reason", "FieldValueInvalid"),
        field_path=rule.get("fieldPath", ""),
        transition="oldSelf" in program.variables(),
        functions=_functions_of(program),
    )


def _functions_of(program: cel.Program) -> dict[str, Callable[..., Any]]:
    """What the program calls beyond CEL's own functions; it names them without their namespace."""
    called = set(program.functions())
    return {name: function for name, function in _LIBRARY.items() if name.rpartition(".")[2] in called}


def _evaluate(rule: _Rule, value: Any, old: Any, path: str) -> FieldError | None:
    if rule.transition and old is MISSING:
        return None
    variables = {"self": value, "oldSelf": old} if rule.transition else {"self": value}
    context = cel.Context(variables=variables, functions=rule.functions)
    where = (path + rule.field_path).lstrip(".")
    try:
        if rule.program.execute(context) is True:
            return None
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        detail = f"{error} evaluating rule: {rule.message or rule.source}"
        return FieldError(path=path, reason="FieldValueInvalid", detail=detail)
    shown = MISSING if isinstance(value, (dict, list)) else value
    return FieldError(path=where, reason=rule.reason, detail=rule.message or f"failed rule: {rule.source}", value=shown)
