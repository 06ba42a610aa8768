"""Server-side apply by itself: laws that hold for any manager and any configuration."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver.ownership.apply import apply, merge
from sandbox.apiserver.ownership.fieldsets import paths
from sandbox.apiserver.ownership.managedfields import APPLY, Manager
from sandbox.apiserver.schema.structural import compile_schema

CARD = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "properties": {"i": {"type": "integer"}, "v": {"type": "integer"}},
}
CARDS = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["i"], "items": CARD}
SPEC = {"type": "object", "properties": {"mode": {"type": "string"}, "cards": CARDS}}
SCHEMA = compile_schema({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": SPEC}})
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["Auto", "Manual"]),
        "cards": st.dictionaries(st.integers(0, 4), st.integers(0, 2), max_size=4).map(
            lambda cards: [{"i": index, "v": value} for index, value in cards.items()]
        ),
    },
).map(lambda spec: {"metadata": {"name": "n"}, "spec": spec})
BLANK: dict[str, Any] = {"metadata": {"name": "n"}, "spec": {}}


def applied(live: Any, config: Any, name: str, now: str = "then") -> Any:
    manager = Manager(name=name, operation=APPLY, api_version="v1")
    return apply(live, config, SCHEMA, manager, force=True, now=now)


def cards(obj: Any) -> dict[int, int]:
    return {card["i"]: card["v"] for card in (obj.get("spec") or {}).get("cards") or []}


@given(CONFIGS)
def test_applying_again_changes_nothing(config: Any) -> None:
    once = applied(BLANK, config, "a")

    assert applied(once, config, "a", now="later") == once


@given(CONFIGS, CONFIGS)
def test_a_manager_gets_what_it_applies(first: Any, second: Any) -> None:
    live = applied(applied(BLANK, first, "other"), second, "a")

    assert cards(live).items() >= cards(second).items()
    if "mode" in second["spec"]:
        assert live["spec"]["mode"] == second["spec"]["mode"]


@given(CONFIGS, CONFIGS)
def test_a_sole_manager_leaves_nothing_behind(first: Any, second: Any) -> None:
    live = applied(applied(BLANK, first, "a"), second, "a")

    assert cards(live) == cards(second)


@given(CONFIGS, CONFIGS)
def test_withdrawing_leaves_what_the_other_owns(mine: Any, theirs: Any) -> None:
    both = applied(applied(BLANK, mine, "a"), theirs, "b")
    left = applied(both, BLANK, "a")

    assert cards(left) == cards(theirs)


@given(CONFIGS, CONFIGS)
def test_every_owned_item_exists(first: Any, second: Any) -> None:
    live = applied(applied(applied(BLANK, first, "a"), second, "b"), {**BLANK, "spec": {"mode": "Auto"}}, "a")

    for entry in live["metadata"].get("managedFields", []):
        for path in paths(entry["fieldsV1"]):
            if path[:2] == ("f:spec", "f:cards") and len(path) > 2:
                assert path[2] in {f'k:{{"i":{index}}}' for index in cards(live)}


@given(st.permutations(range(5)), st.permutations(range(5)), st.integers(0, 5), st.integers(0, 5))
def test_a_merged_list_has_each_item_once_and_the_applied_order(
    live: list[int], config: list[int], some: int, others: int
) -> None:
    here, there = [{"i": index} for index in live[:some]], [{"i": index} for index in config[:others]]

    merged = [card["i"] for card in merge({"cards": here}, {"cards": there}, compile_schema(SPEC))["cards"]]

    assert sorted(merged) == sorted({*live[:some], *config[:others]})
    assert [index for index in merged if index in config[:others]] == config[:others]
