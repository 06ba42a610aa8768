"""nos' own test cases as data -> clusters to plan, with how many pods nos expects to place.

Takes a group's name and a case, returns a Case, or a NotRun with the reason: it says nothing about pods, or it pairs
models, profiles and placements that do not exist. Cases differ by their fields, not by name, so that others of
the same form are understood as well. Where a case has no pods, every slice that it requests is one pod's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from benchmarks.nos.cluster import Card, Counts, ImpossibleError, Server, resource_of, server
from benchmarks.nos.counts import counts_of, whole_number
from benchmarks.nos.expected import first_matching, most_pods, needed
from benchmarks.nos.pieces import (
    Form,
    card_of,
    less,
    model_of,
    model_of_gpu,
    one_each,
    pod_of,
    pool_of,
    profiles_in,
    smallest_profile,
)
from benchmarks.nos.workloads import slices_of
from controller.model.scheduling import Taint
from controller.model.views import PodView

REFUSAL = Taint(key="nos.example/refused", effect="NoSchedule")
"""A scheduler that refuses everything."""
_KINDS = {"planner_mig": "mig", "mig": "mig", "planner_mps": "mps", "mps": "mps"}
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A cluster, and how many of its pending pods nos expects to be served."""

    servers: tuple[Server, ...]
    pending: tuple[PodView, ...]
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """One node before its slices in use are placed."""

    name: str
    cards: tuple[Card, ...]


def read_case(group: str, raw: object) -> Case | NotRun:
    """What one case expects of a planner."""
    if not isinstance(raw, Mapping):
        return NotRun(reason=f"not understood: {raw!r} is no case")
    kind = next((kind for prefix, kind in _KINDS.items() if group == prefix or group.startswith(f"{prefix}_")), None)
    if kind is None:
        return NotRun(reason="no planner, MIG or MPS case")
    try:
        return _read(Form(kind=kind, spellings=frozenset(profiles_in(raw))), raw)
    except ImpossibleError as error:
        return NotRun(reason=str(error))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        return NotRun(reason=f"not understood: {what}")


def _read(form: Form, raw: Raw) -> Case | NotRun:
    expect = raw.get("expect")
    if "pods" in raw and "nodes" in raw and isinstance(expect, Mapping) and "gpus" in expect:
        return _planning(form, raw, expect)
    nodes = [_single_node(form, raw)]
    if "pod" in raw and isinstance(expect, Mapping):
        served = 0 if expect.get("error") else 1
        return _case(form, nodes, [pod_of(0, raw["pod"])], served)
    if "required" in raw and isinstance(expect, Mapping):
        return _updating(form, nodes, counts_of(raw["required"], "required"), expect)
    if "apply" in raw and isinstance(expect, Mapping):
        return _applying(form, nodes, raw, expect)
    if isinstance(expect, bool):
        smallest = sorted({smallest_profile(form, card.model) for node in nodes for card in node.cards})
        return _case(form, nodes, one_each(dict.fromkeys(smallest, 1)), int(expect))
    return NotRun(reason="it says nothing about pods")


def _case(form: Form, nodes: Iterable[_Node], pods: Sequence[PodView], expected: int, *, refused: bool = False) -> Case:
    taints = (REFUSAL,) if refused else ()
    return Case(
        servers=tuple(server(node.name, form.kind, node.cards, taints=taints) for node in nodes),
        pending=tuple(pods),
        expected=expected,
    )


def _planning(form: Form, raw: Raw, expect: Raw) -> Case:
    """Nodes and pods, and every GPU's geometry after planning."""
    enabled = [node for node in raw["nodes"] or () if _is_enabled(form, node)]
    nodes = [_planned_node(form, f"node-{number}", node) for number, node in enumerate(enabled)]
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        raise ImpossibleError(f"two of its nodes have one name: {', '.join(names)}")
    pods = [pod_of(number, pod) for number, pod in enumerate(raw["pods"] or ())]
    scheduler = raw.get("scheduler") or {}
    refused = any(scheduler.get(step, "success") != "success" for step in ("prefilter", "filter"))
    cards = [card for node in nodes for card in node.cards]
    entries = [_entry(entry) for entry in expect["gpus"] or ()]
    later = _assigned(form, cards, entries)
    nodes = [replace(node, cards=tuple(later[id(card)] for card in node.cards)) for node in nodes]
    pools = [pool_of(node.cards) for node in nodes]
    expected = 0 if refused else most_pods([needed(pod) for pod in pods], pools)
    return _case(form, nodes, pods, expected, refused=refused)


def _is_enabled(form: Form, node: Raw) -> bool:
    """Without these labels nos does not see a node."""
    labels = ("model", "count", "memory") if form.kind == "mps" else ("model", "count")
    return all(node.get(label) is not None for label in labels)


def _planned_node(form: Form, name: str, node: Raw) -> _Node:
    model = model_of(form, node.get("model"), node.get("memory"))
    given = {whole_number(gpu["index"], "index"): gpu for gpu in node.get("gpus") or ()}
    count = max([whole_number(node["count"], "count"), *(index + 1 for index in given)])
    return _Node(
        name=str(node.get("name", name)),
        cards=tuple(card_of(index, model, given.get(index, {})) for index in range(count)),
    )


def _entry(entry: Raw) -> tuple[int | None, Counts]:
    """A GPU's geometry with its index, or the geometry alone."""
    if "index" not in entry and "geometry" not in entry:
        return None, counts_of(entry, "gpus")
    index = entry.get("index")
    return None if index is None else whole_number(index, "index"), counts_of(entry.get("geometry"), "geometry")


def _assigned(form: Form, cards: Sequence[Card], entries: Sequence[tuple[int | None, Counts]]) -> dict[int, Card]:
    """Each card with what nos expects in addition to its slices in use; in the order of the file if that is possible.

    A GPU of which nothing is expected stays as it is.
    """
    if len(entries) > len(cards):
        raise ImpossibleError(f"{len(entries)} geometries are expected of {len(cards)} GPUs")
    possible: list[dict[int, Card]] = []
    for entry in entries:
        problem, found = "", {}
        for position, card in enumerate(cards):
            try:
                found[position] = _with_later(form, card, entry)
            except ImpossibleError as error:
                problem = str(error)
        if not found:
            raise ImpossibleError(f"nos expects what cannot be: {problem}")
        possible.append(found)
    order = first_matching([sorted(found) for found in possible])
    if order is None:
        raise ImpossibleError("nos expects what cannot be: these geometries have no GPU each")
    later = {id(card): replace(card, later=card.free) for card in cards}
    later.update({id(cards[here]): found[here] for here, found in zip(order, possible, strict=True)})
    return later


def _with_later(form: Form, card: Card, entry: tuple[int | None, Counts]) -> Card:
    index, geometry = entry
    if index is not None and index != card.index:
        raise ImpossibleError(f"GPU {index} is not GPU {card.index}")
    found = replace(card, later=less(geometry, card.used))
    server("tried", form.kind, [found])
    return found


def _single_node(form: Form, raw: Raw) -> _Node:
    """The GPUs of a case: given one by one, by labels and status, or the case is itself one GPU."""
    if "gpus" in raw:
        cards = [
            card_of(whole_number(gpu.get("index", position), "index"), model_of_gpu(form, gpu), gpu)
            for position, gpu in enumerate(raw["gpus"] or ())
        ]
    elif "labels" in raw or "status" in raw:
        cards = list(_labelled(form, raw.get("labels") or {}, raw.get("status") or {}))
    elif any(key in raw for key in ("model", "memory_gb", "used", "free")):
        cards = [card_of(0, model_of_gpu(form, raw), raw)]
    else:
        cards = []
    return _Node(name="node", cards=tuple(cards))


def _labelled(form: Form, labels: Raw, status: Raw) -> Iterator[Card]:
    count = whole_number(labels.get("count") or 0, "count")
    model = model_of(form, labels.get("product"), labels.get("memory")) if count else None
    used, free = slices_of(status)
    for index in range(count):
        assert model is not None
        yield Card(index=index, model=model, used=used.get(index, {}), free=free.get(index, {}))


def _updating(form: Form, nodes: Sequence[_Node], required: Counts, expect: Raw) -> Case:
    """Slices that are required, and the geometry after: of the GPU, or of all GPUs of the node together."""
    pods = one_each(required)
    if "geometry" not in expect:
        pools = [pool_of([replace(card, later=card.free) for card in node.cards]) for node in nodes]
        already = most_pods([needed(pod) for pod in pods], pools)
        return _case(form, nodes, pods, max(already, min(len(pods), int(bool(expect.get("updated"))))))
    (node,) = nodes
    server("before", form.kind, node.cards)
    used: dict[str, int] = {}
    for card in node.cards:
        used = {name: used.get(name, 0) + card.used.get(name, 0) for name in {*used, *card.used}}
    geometry = counts_of(expect["geometry"], "geometry")
    later = less(geometry, used)
    cards = _split(form, node.cards, later)
    if cards is None:
        raise ImpossibleError(f"nos expects what cannot be: {geometry} on these GPUs")
    expected = most_pods([needed(pod) for pod in pods], [pool_of(cards)])
    return _case(form, [replace(node, cards=cards)], pods, expected)


def _split(form: Form, cards: Sequence[Card], later: Counts) -> tuple[Card, ...] | None:
    """Which of these slices each GPU could come to hold with those in use; None if they do not fit together."""
    if not cards:
        return None if later else ()
    names = sorted(later)
    for counts in product(*(range(later[name], -1, -1) for name in names)):
        here = {name: count for name, count in zip(names, counts, strict=True) if count}
        first = replace(cards[0], later=here)
        try:
            server("tried", form.kind, [first])
        except ImpossibleError:
            continue
        rest = _split(form, cards[1:], less(later, here))
        if rest is not None:
            return (first, *rest)
    return None


def _applying(form: Form, nodes: Sequence[_Node], raw: Raw, expect: Raw) -> Case:
    """A geometry that is applied: what it adds to the slices in use could serve that many pods."""
    (node,) = nodes
    used = counts_of(raw.get("used"), "used")
    added = {name: max(0, count - used.get(name, 0)) for name, count in counts_of(raw["apply"], "apply").items()}
    pods = one_each(added)
    if expect.get("error"):
        return _case(form, nodes, pods, 0)
    later = counts_of(expect.get("free"), "free")
    cards = tuple(replace(card, later=later) for card in node.cards)
    pool = {resource_of(name): count for name, count in later.items()}
    return _case(form, [replace(node, cards=cards)], pods, most_pods([needed(pod) for pod in pods], [pool]))
