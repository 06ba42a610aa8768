"""Required node affinity of many terms: the same answer as term by term, and no more work than for a few."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.scheduling import NodeSelectorTerm, Requirement
from controller.simulator import selectors
from controller.simulator.selectors import matches_terms
from tests.controller.planner.builders import node

VALUES = st.lists(st.sampled_from(["x", "y", "n1", ""]), max_size=3).map(tuple)
REQUIREMENTS = st.builds(
    Requirement,
    key=st.sampled_from(["a", "b", "metadata.name"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
    values=VALUES,
)
TERMS = st.builds(
    NodeSelectorTerm,
    labels=st.lists(REQUIREMENTS, max_size=2).map(tuple),
    fields=st.lists(REQUIREMENTS, max_size=2).map(tuple),
)
LABELS = st.dictionaries(st.sampled_from(["a", "b", "metadata.name"]), st.sampled_from(["x", "y", "n1"]))


@given(st.lists(TERMS, min_size=9, max_size=12).map(tuple), LABELS, st.sampled_from(["n1", "n2"]))
def test_many_terms_match_where_one_of_them_does(
    terms: tuple[NodeSelectorTerm, ...], labels: dict[str, str], name: str
) -> None:
    one = replace(node(name), labels=labels)
    assert matches_terms(terms, one) == any(matches_terms((term,), one) for term in terms)


@pytest.mark.parametrize("field", [False, True])
def test_a_node_meets_only_the_terms_that_name_its_labels(field: bool) -> None:
    key = "metadata.name" if field else "host"
    named = [(Requirement(key=key, operator="In", values=(f"n{number}",)),) for number in range(5_000)]
    terms = tuple(NodeSelectorTerm(fields=one) if field else NodeSelectorTerm(labels=one) for one in named)
    nodes = [node(f"n{number}", labels={"host": f"n{number}"}) for number in range(4_990, 5_010)]
    tried = 0
    kept = selectors._term_matches

    def counting(*arguments: object) -> bool:
        nonlocal tried
        tried += 1
        return kept(*arguments)  # type: ignore[arg-type]

    with patch.object(selectors, "_term_matches", counting):
        assert [matches_terms(terms, one) for one in nodes] == [True] * 10 + [False] * 10
    assert tried == 10
