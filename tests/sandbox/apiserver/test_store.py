"""The store: its history can rebuild any state that it still remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.storage.listing import ListOptions, list_page
from sandbox.apiserver.storage.store import ADDED, DELETED, MODIFIED, Store

KIND = ("", "things")
WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30)


def write(store: Store, name: str, delete: bool) -> None:
    key = ("", name)
    there = key in store.collection(KIND).items
    if delete and not there:
        return
    type_ = DELETED if delete else MODIFIED if there else ADDED
    store.commit(KIND, type_, key, {"metadata": {"name": name, "write": store.version}})


def names_and_writes(store: Store) -> dict[str, int]:
    return {key[1]: entry.obj["metadata"]["write"] for key, entry in store.collection(KIND).items.items()}


@given(WRITES)
def test_every_version_can_be_rebuilt(writes: list[tuple[str, bool]]) -> None:
    store = Store(first_version=100, window=1000)
    states = {store.version: names_and_writes(store)}
    for name, delete in writes:
        write(store, name, delete)
        states[store.version] = names_and_writes(store)

    for version, state in states.items():
        past = store.collection(KIND).at(version)
        assert {key[1]: entry.obj["metadata"]["write"] for key, entry in past.items()} == state


@given(WRITES, WRITES, st.integers(1, 3))
def test_pages_together_are_the_first_state(
    before: list[tuple[str, bool]], during: list[tuple[str, bool]], limit: int
) -> None:
    store = Store(first_version=100, window=1000)
    for name, delete in before:
        write(store, name, delete)
    whole = sorted(names_and_writes(store).items())
    collected: list[tuple[str, int]] = []
    token, later = "", iter(during)
    while True:
        options = ListOptions(limit=limit, continue_token=token)
        entries, metadata = list_page(store.collection(KIND), options, store.version)
        collected += [(e.obj["metadata"]["name"], e.obj["metadata"]["write"]) for e in entries]
        token = metadata.get("continue", "")
        if not token:
            break
        for name, delete in (pair for pair, _ in zip(later, range(3), strict=False)):
            write(store, name, delete)

    assert collected == whole


def test_what_is_forgotten_is_expired() -> None:
    store = Store(first_version=100, window=3)
    for number in range(10):
        write(store, f"n{number}", delete=False)
    _, metadata = list_page(store.collection(KIND), ListOptions(limit=1), store.version)
    for number in range(10):
        write(store, f"m{number}", delete=False)

    options = ListOptions(limit=1, continue_token=metadata["continue"])
    with pytest.raises(ApiError) as caught:
        list_page(store.collection(KIND), options, store.version)

    assert (caught.value.code, caught.value.reason) == (410, "Expired")


def test_events_since_a_version_cost_only_themselves() -> None:
    store = Store(first_version=100, window=1000)
    for number in range(50):
        write(store, f"n{number}", delete=False)

    assert [event.version for event in store.collection(KIND).since(148)] == [149, 150]
    assert store.collection(KIND).since(150) == []


def test_json_is_made_once() -> None:
    store = Store(first_version=100, window=10)
    write(store, "a", delete=False)
    entry = store.collection(KIND).items[("", "a")]

    assert entry.encoded is entry.encoded
