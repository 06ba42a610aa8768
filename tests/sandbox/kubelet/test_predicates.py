"""The resource check after admission: the kubelet's reasons and numbers."""

import pytest

from sandbox.kubelet.admission import Rejection, check_resources, raised

NODE = {"cpu": 8000, "memory": 1 << 30, "pods": 3, "nvidia.com/gpu": 3}


@pytest.mark.parametrize(
    ("requests", "others", "expected"),
    [
        ({"cpu": 8000, "nvidia.com/gpu": 3}, [], None),
        ({"cpu": 1}, [{"cpu": 8000}], ("OutOfcpu", "cpu, requested: 1, used: 8000, capacity: 8000")),
        (
            {"nvidia.com/gpu": 3},
            [{"nvidia.com/gpu": 1}],
            ("OutOfnvidia.com/gpu", "nvidia.com/gpu, requested: 3, used: 1, capacity: 3"),
        ),
        ({}, [{}, {}, {}], ("OutOfpods", "pods, requested: 1, used: 3, capacity: 3")),
        ({"memory": 2 << 30, "cpu": 9000}, [], ("OutOfcpu", "cpu, requested: 9000, used: 0, capacity: 8000")),
        ({"example.com/unseen": 5}, [], None),
        ({"hugepages-2Mi": 1}, [], ("OutOfhugepages-2Mi", "hugepages-2Mi, requested: 1, used: 0, capacity: 0")),
    ],
)
def test_check_resources(
    requests: dict[str, int], others: list[dict[str, int]], expected: tuple[str, str] | None
) -> None:
    rejection = None
    if expected is not None:
        rejection = Rejection(reason=expected[0], message=f"Node didn't have enough resource: {expected[1]}")

    assert check_resources(requests, others, NODE) == rejection


def test_allocatable_is_never_less_than_what_is_allocated() -> None:
    assert raised({"a": 1, "b": 5}, {"a": 2, "b": 2, "c": 1}) == {"a": 2, "b": 5, "c": 1}
