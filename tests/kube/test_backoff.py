"""Pauses between attempts: they double, have a cap, are spread, and start over."""

from kube.backoff import Backoff


def test_backoff_doubles_to_its_cap_with_jitter_and_resets() -> None:
    rolls = iter([0.0, 1.0, 0.5, 1.0, 0.0])
    backoff = Backoff(first_seconds=1.0, cap_seconds=3.0, jitter=lambda: next(rolls))
    assert [backoff.next_seconds() for _ in range(4)] == [0.5, 2.0, 2.25, 3.0]
    backoff.reset()
    assert backoff.next_seconds() == 0.5
