"""Foreign YAML: an object or a sentence, whatever the text."""

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.yaml_text import MAX_DEPTH, NotYaml, read_documents, read_yaml

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))
DEEP_BY_ALIAS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, MAX_DEPTH + 1))
REFUSED = {
    "unfinished": ("a: [", "is not valid YAML: .*line 2"),
    "digits": ("a: " + "7" * 4301, "is not valid YAML"),
    "digits in JSON": ('{"a": ' + "7" * 4301 + "}", "is not valid YAML"),
    "hexadecimal": ("a: 0x" + "f" * 5000, "64 bits do not hold"),
    "brackets": ("[" * 200_000 + "]" * 200_000, f"is nested deeper than {MAX_DEPTH} levels"),
    "open brackets": ("[" * 200_000, f"is nested deeper than {MAX_DEPTH} levels"),
    "brackets of JSON": ('{"a": ' + "[" * 500 + "]" * 500 + "}", f"is nested deeper than {MAX_DEPTH} levels"),
    "deep JSON": ('{"a": ' * 50_000 + "1" + "}" * 50_000, "is nested deeper|is not valid YAML"),
    "laughs": (LAUGHS, "grows without measure by its aliases"),
    "merged laughs": (MERGES, "grows without measure by its aliases"),
    "aliases in a chain": (DEEP_BY_ALIAS, f"is nested deeper than {MAX_DEPTH} levels"),
    "itself": ("a: &a [*a]", r"\*a names nothing"),
    "unknown alias": ("a: *b", r"\*b names nothing"),
    "two documents": ("a: 1\n---\nb: 2", "has 2 documents: one is needed"),
    "same key": ("a: 1\na: 2", "a is there twice"),
    "list as key": ("{[1]: 2}", "is not valid YAML"),
    "a set": ("!!set {a, b}", "is not valid YAML"),
    "bytes": ("!!binary aGVsbG8=", "is not valid YAML"),
    "a command": ("!!python/object/apply:os.getcwd []", "is not valid YAML"),
    "tagged time": ("!!timestamp x", "is not valid YAML"),
    "tagged bool": ("!!bool x", "is not valid YAML"),
    "tagged int": ('!!int ""', "is not valid YAML"),
    "tagged float": ("!!float x", "is not valid YAML"),
    "same key in much JSON": (
        "{" + "".join(f'"a{n}": 1, ' for n in range(60_000)) + '"a59999": 1}',
        "a59999 is there twice",
    ),
    "same key in JSON": ('{"a": {"b": 1, "c": 2, "b": 3}}', "b is there twice"),
    "digits that JSON could hold": ('{"a": ' + "7" * 4000 + "}", "64 bits do not hold"),
    "infinite": ("a: .inf", "64 bits do not hold.*line 1"),
    "no number": ("a: .nan", "64 bits do not hold"),
    "infinite in JSON": ('{"a": Infinity}', "64 bits do not hold"),
    "no number in JSON": ('{"a": NaN}', "64 bits do not hold"),
    "too large for JSON": ('{"a": -1e999}', "64 bits do not hold"),
    "control": ("a: \x07", "is not valid YAML"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_a_sentence(text: str, sentence: str) -> None:
    found = read_yaml(text)
    assert isinstance(found, NotYaml)
    assert re.search(sentence, found.sentence), found.sentence[:200]
    assert len(found.sentence) < 1000


READ = {
    "": None,
    "a: 2024-13-01": {"a": "2024-13-01"},
    "a: 2024-01-01": {"a": "2024-01-01"},
    "a: =": {"a": "="},
    "{1: x, true: y, on: z}": {"1": "x", "true": "y", "on": "z"},
    "a: &a {x: 1}\nb: {<<: *a, y: 2}": {"a": {"x": 1}, "b": {"x": 1, "y": 2}},
    "a: 0x10": {"a": 16},
    "a: 12:30\nb: 1:30.5": {"a": "12:30", "b": "1:30.5"},
    '{"a": [1, {"b": null}]}': {"a": [1, {"b": None}]},
}


@pytest.mark.parametrize(("text", "content"), READ.items())
def test_a_text_is_read_as_kubernetes_reads_it(text: str, content: object) -> None:
    assert read_yaml(text) == content


def test_the_limits_are_limits_and_not_less() -> None:
    assert not isinstance(read_yaml("[" * MAX_DEPTH + "]" * MAX_DEPTH), NotYaml)
    assert isinstance(read_yaml("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)), NotYaml)
    # The innermost mapping is level MAX_DEPTH.
    inner = MAX_DEPTH - 1
    assert not isinstance(read_yaml('{"a": ' * inner + "{}" + "}" * inner), NotYaml)
    assert isinstance(read_yaml('{"a": ' * MAX_DEPTH + "{}" + "}" * MAX_DEPTH), NotYaml)
    assert read_yaml("a: 1", largest=4) == {"a": 1}
    assert read_yaml("a: 12", largest=4) == NotYaml("has more than 4 characters")
    assert read_yaml("a: &a {x: 1}\nb: [" + "*a, " * 1000 + "]") == {"a": {"x": 1}, "b": [{"x": 1}] * 1000}


def test_documents_of_either_form_follow_one_another() -> None:
    assert read_documents("a: 1\n---\nb: 2\n---\n") == [{"a": 1}, {"b": 2}, None]
    assert read_documents('{"a": 1}\n{"b": 2}\n') == [{"a": 1}, {"b": 2}]
    assert read_documents('{"a": 1}\n---\nb: 2\n') == [{"a": 1}, {"b": 2}]


TAGS = [f"!!{name} " for name in ("int", "bool", "map", "seq", "float", "null", "timestamp", "set", "omap", "binary")]
MARKS = [
    ": ",
    "- ",
    "\n",
    "  ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&x ",
    "*x",
    "<<",
    "|",
    ">",
    "'",
    '"',
    "---",
    "...",
    "?",
    "=",
    "~",
]
VALUES = ["a", "1", "0x", "1:2", ".inf", "1e999", "2024-13-01", "\ud800", "\x00", "é", "\t", "%YAML 1.1"]
PIECES = st.sampled_from(TAGS + MARKS + VALUES)


@given(st.lists(PIECES, max_size=30).map("".join) | st.text())
def test_no_text_raises(text: str) -> None:
    found = read_documents(text)
    if not isinstance(found, NotYaml):
        json.dumps(found)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
def test_what_json_can_say_comes_back(content: object) -> None:
    document = {"content": content}
    assert read_yaml(json.dumps(document)) == document
    assert read_yaml(yaml.safe_dump(document)) == document
