"""What nodes hold, as the scheduler counts it."""

from controller.model.views import NodeView, PodView
from sandbox.scheduler.book import Book
from tests.builders import objects
from tests.builders.views import pod_view


def pod(name: str = "p", *, cpu: int = 1000, nominated: str = "") -> PodView:
    return pod_view(objects.pod(name, requests={"cpu": f"{cpu}m"}, uid=name, nominated=nominated))


def held(book: Book, node: str) -> int:
    return book.usage[node].held["cpu"]


def test_nodes_are_sorted() -> None:
    book = Book()
    for name in ("b", "c", "a"):
        book.put_node(name, NodeView(name=name, uid=name))
    book.put_node("c", None)
    assert [node.name for node in book.nodes] == ["a", "b"]


def test_an_assumed_pod_counts_once_when_it_is_seen_bound() -> None:
    book = Book()
    assert not book.place(pod(), "a")
    assert not book.place(pod(), "a")
    assert (held(book, "a"), book.usage["a"].held.pods) == (1000, 1)


def test_a_pod_that_shrinks_or_turns_up_elsewhere_frees_room() -> None:
    book = Book()
    book.place(pod(), "a")
    assert book.place(pod(cpu=500), "a")
    assert held(book, "a") == 500
    assert book.place(pod(cpu=500), "b")
    assert (held(book, "a"), held(book, "b")) == (0, 500)


def test_removal_is_idempotent() -> None:
    book = Book()
    book.place(pod(), "a")
    assert book.remove("p")
    assert not book.remove("p")
    assert held(book, "a") == 0


def test_nominations_follow_the_pod() -> None:
    book = Book()
    assert not book.nominate(pod())
    assert not book.nominate(pod(nominated="a"))
    assert book.nominate(pod(nominated="b"))
    assert {node: [one.name for one in pods] for node, pods in book.nominated.items()} == {"b": ["p"]}
    assert book.nominate(pod())
    assert book.nominated == {}
    book.nominate(pod(nominated="a"))
    assert book.drop_nomination("p")
    assert not book.drop_nomination("p")
