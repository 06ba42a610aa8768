"""CEL rules: where they are evaluated, what they see of the old object, what they say."""

from typing import Any

import pytest

from sandbox.apiserver.schema.rules import RuleError, Rules
from sandbox.apiserver.schema.structural import compile_schema


def rules(field: dict[str, Any], *root: dict[str, Any]) -> Rules:
    schema = {"type": "object", "properties": {"f": field}, "x-kubernetes-validations": list(root)}
    return Rules(compile_schema(schema))


def messages(found: Rules, value: Any, *old: Any) -> list[str]:
    return [f"{error.path}: {error.body()}" for error in found.check(value, *old)]


def test_a_rule_without_message_shows_itself() -> None:
    found = rules({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]})

    assert messages(found, {"f": 2}) == ["f: Invalid value: 2: failed rule: self > 3"]
    assert messages(found, {"f": 4}) == []
    assert messages(found, {}) == []


def test_reasons_and_field_paths() -> None:
    rule = {"rule": "has(self.f)", "message": "f, please", "fieldPath": ".f", "reason": "FieldValueRequired"}

    assert messages(rules({"type": "string"}, rule), {}) == ["f: Required value: f, please"]


def test_transition_rules_need_an_old_value() -> None:
    found = rules({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]})

    assert messages(found, {"f": "a"}) == []
    assert messages(found, {"f": "a"}, {}) == []
    assert messages(found, {"f": "a"}, {"f": "a"}) == []
    assert messages(found, {"f": "b"}, {"f": "a"}) == ['f: Invalid value: "b": fixed']


def test_items_of_a_list_map_are_compared_by_key() -> None:
    item = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "required": ["k"],
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "only up"}],
    }
    keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    found = rules({"type": "array", "items": item, **keys})
    old = {"f": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}

    assert messages(found, {"f": [{"k": "b", "v": 2}, {"k": "a", "v": 4}]}, old) == ["f[1]: Invalid value: only up"]


def test_what_did_not_change_is_not_judged_again() -> None:
    found = rules({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 3"}]})

    assert messages(found, {"f": 2, "g": 1}, {"f": 2}) == []


def test_a_rule_that_cannot_be_evaluated_fails() -> None:
    found = rules({"type": "object", "x-kubernetes-validations": [{"rule": "self.a.b == 1", "message": "m"}]})

    assert "evaluating rule: m" in messages(found, {"f": {"a": {}}})[0]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.lowerAscii() == 'a'", "A"),
        ("self.split(',').size() == 2", "a,b"),
        ("self.matches('^[a-z]+$')", "abc"),
    ],
)
def test_functions_that_kubernetes_gives_to_rules(rule: str, value: str) -> None:
    assert messages(rules({"type": "string", "x-kubernetes-validations": [{"rule": rule}]}), {"f": value}) == []


@pytest.mark.parametrize("word", ["messageExpression", "optionalOldSelf"])
def test_words_of_a_rule_that_are_not_evaluated_are_refused(word: str) -> None:
    with pytest.raises(RuleError, match=f"{word} is not supported in the sandbox") as caught:
        rules({"type": "string", "x-kubernetes-validations": [{"rule": "self == ''", word: "x"}]})

    assert caught.value.path.endswith(f"x-kubernetes-validations[0].{word}")


def test_what_is_no_cel_is_refused() -> None:
    with pytest.raises(RuleError, match="compilation failed") as caught:
        rules({"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]})

    assert caught.value.path == "spec.validation.openAPIV3Schema.properties[f].x-kubernetes-validations[0].rule"
