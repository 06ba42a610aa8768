"""Reads a text of YAML or JSON that another client wrote: objects as Kubernetes reads them, or a sentence.

First the parser's events are counted, without building anything: what is too long, too deep, or grows by aliases is
refused there, since composing it would end the process. Then only what JSON can say is built: a time stamp stays a
text, keys are texts, and no key is there twice. Nothing that a text holds may raise here, and no other module of the
product loads YAML.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAX_CHARACTERS = 16 << 20
"""Sixteen times what a ConfigMap can hold."""
MAX_DEPTH = 100
"""The deepest object of Kubernetes, a CRD, has about forty levels."""
MAX_BITS = 64
"""Of a whole number; Python would not print one of 4,301 digits."""
_ALIASED_NODES = 100_000
"""So many nodes may aliases add to those that a text spells out."""

BROKEN = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)
"""What PyYAML raises where a text is wrong: tags alone bring five of them."""


@dataclass(frozen=True, slots=True)
class NotYaml:
    """The text cannot be used; the sentence begins with a verb, for the name of the file to stand before it."""

    sentence: str


def read_yaml(text: str, *, largest: int = MAX_CHARACTERS) -> Any | NotYaml:
    """The one document of a text; None where it is empty."""
    found = read_documents(text, largest=largest)
    if isinstance(found, NotYaml):
        return found
    return NotYaml(f"has {len(found)} documents: one is needed") if len(found) > 1 else next(iter(found), None)


def read_yaml_file(path: Path) -> Any | NotYaml:
    """The same of a file; the sentence also says why it cannot be read."""
    try:
        return read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        return NotYaml(f"{error.strerror or error}: name a readable YAML file")
    except UnicodeDecodeError as error:
        return NotYaml(f"is not valid YAML: {error}")


def read_documents(text: str, *, largest: int = MAX_CHARACTERS) -> list[Any] | NotYaml:
    """All documents of a text."""
    if len(text) > largest:
        return NotYaml(f"has more than {largest:,} characters")
    try:
        found = _decoded(text)
        if found is None:
            problem = _problem(text)
            return NotYaml(problem) if problem else list(yaml.load_all(text, Loader=_Loader))
    except BROKEN as error:
        return NotYaml(f"is not valid YAML: {' '.join(str(error).split())}")
    return NotYaml(_too_deep()) if _deep([found]) else found


def path_of(location: Iterable[int | str]) -> str:
    """Of a field in a document, as kubectl spells it: `spec.gpus[0].index`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _decoded(text: str) -> list[Any] | None:
    """JSON documents, one after the other; None where it is YAML, which is read a hundred times slower."""
    if not text.lstrip().startswith("{"):
        return None
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=lambda number: _limited(int(number)),
        parse_float=lambda number: _limited(float(number)),
        parse_constant=lambda number: _limited(float(number)),
    )
    position, found = len(text) - len(text.lstrip()), []
    try:
        while position < len(text):
            document, end = decoder.raw_decode(text, position)
            found.append(document)
            position = len(text) - len(text[end:].lstrip())
    except json.JSONDecodeError:
        return None
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is there twice in one mapping")
        found[key] = value
    return found


def _limited(number: Any) -> Any:
    """What other programs can hold, and Python can print."""
    if (isinstance(number, int) and number.bit_length() > MAX_BITS) or not math.isfinite(number):
        raise ValueError(f"a number that {MAX_BITS} bits do not hold")
    return number


def _deep(level: list[Any]) -> bool:
    """Level by level, since a function that calls itself would be what is feared here."""
    for _ in range(MAX_DEPTH + 1):
        values = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for each in values for value in each if isinstance(value, dict | list)]
    return bool(level)


def _too_deep() -> str:
    return f"is nested deeper than {MAX_DEPTH} levels"


@dataclass(slots=True)
class _Extent:
    """How many nodes a part of a document has with its aliases, and how many levels."""

    anchor: str | None = None
    nodes: int = 1
    levels: int = 0


def _problem(text: str) -> str:
    """Why this text is not built; '' where it can be."""
    anchors: dict[str, _Extent] = {}
    open_: list[_Extent] = [_Extent()]
    for done in _parts(text, anchors, open_):
        if len(open_) + done.levels > MAX_DEPTH + 1:
            return _too_deep()
        if done.nodes > len(text) + _ALIASED_NODES:
            return "grows without measure by its aliases"
        if done.anchor is not None:
            anchors[done.anchor] = done
        open_[-1].nodes += done.nodes
        open_[-1].levels = max(open_[-1].levels, done.levels + 1)
    return ""


def _parts(text: str, anchors: dict[str, _Extent], open_: list[_Extent]) -> Iterator[_Extent]:
    """Each node when it is complete, and each collection also when it begins: `open_` has those that surround it."""
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.ScalarEvent):
            yield _Extent(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            yield open_.pop()
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_) > MAX_DEPTH:
                yield _Extent(levels=1)
            open_.append(_Extent(event.anchor))
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise yaml.YAMLError(f"*{event.anchor} names nothing that is complete before it")
            known = anchors[event.anchor]
            yield _Extent(None, known.nodes, known.levels)
        elif isinstance(event, yaml.DocumentStartEvent):
            anchors.clear()


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: what JSON can say, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Two files put together without a line --- between them would lose the first one's objects."""
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        if len(keys) > len({str(key) for key in keys}):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice} is there twice in one mapping; documents are separated by ---", node.start_mark
            )
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _TAG + "merge":
                key.tag = _TAG + "str"
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """What YAML 1.1 counts by sixty, such as 12:30, is a text, as in Kubernetes."""
        if ":" in node.value:
            return node.value
        whole = node.tag == _TAG + "int"
        try:
            return _limited(self.construct_yaml_int(node) if whole else self.construct_yaml_float(node))
        except ValueError as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


_TAG = "tag:yaml.org,2002:"
_JSON = ("null", "bool", "str", "seq", "map")
_Loader.yaml_constructors = {
    None: _Loader.construct_undefined,
    **{_TAG + name: yaml.CSafeLoader.yaml_constructors[_TAG + name] for name in _JSON},
    **{_TAG + name: _Loader.construct_number for name in ("int", "float")},
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TAG + "timestamp", _TAG + "value")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
