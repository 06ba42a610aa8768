"""Times as the API writes them, whatever zone they come in."""

from datetime import UTC, datetime, timedelta, timezone

from kube.timestamps import api_time, micro_time

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def test_times_are_written_in_utc() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert api_time(MOMENT) == api_time(elsewhere) == "2026-01-02T03:04:05Z"
    assert micro_time(MOMENT) == micro_time(elsewhere) == "2026-01-02T03:04:05.000678Z"


def test_the_default_is_now() -> None:
    before = api_time()
    assert before <= micro_time()[:19] + "Z" <= api_time(datetime.now(UTC))
