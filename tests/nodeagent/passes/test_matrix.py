"""What cannot serve is not on offer: some cells of `tests.nodeagent.matrix`, which has all of them.

In the quick profile of each call one or two, and as many as show each code, each duration, and an agent that starts
meanwhile.
"""

import re
from functools import partial
from pathlib import Path

import pytest

from nodeagent import hardware
from sandbox.driver.status import Status
from tests import drawn
from tests.nodeagent import matrix
from tests.nodeagent.driver_calls import CALLS, ELSEWHERE, Kind
from tests.nodeagent.matrix import Cell, run

cells = partial(matrix.cells, crossed=drawn.cells)

REQUIRED = [call for call in CALLS if call.kind is Kind.REQUIRED]
SOME = [
    *cells(REQUIRED[:1], [Status.LIB_RM_VERSION_MISMATCH]),
    *cells(REQUIRED[1:2], [Status.UNKNOWN]),
    *cells(REQUIRED[2:4], [Status.UNKNOWN, Status.GPU_IS_LOST]),
    *cells([call for call in REQUIRED if "MIG" in call.gives], [Status.NO_PERMISSION]),
    *cells([call for call in CALLS if call.symbol == "nvmlDeviceGetMigMode"], [Status.NOT_SUPPORTED]),
    *cells(
        [call for call in CALLS if call.symbol == "nvmlDeviceGetMemoryInfo"], [Status.NOT_SUPPORTED, Status.UNKNOWN]
    ),
    *cells([call for call in CALLS if call.kind is Kind.CHANGING], [Status.IN_USE]),
]


ANSWERED = [cell for cell in SOME if cell.code is not None]


# Each answer comes once, for a minute and for ever: every third cell would show one of these alone.
@pytest.mark.parametrize("cell", drawn.points(ANSWERED, each=8), ids=lambda cell: cell.title)
def test_nothing_is_on_offer_that_could_not_serve(cell: Cell) -> None:
    found = run(cell)

    assert (found.unusable, found.lost) == (0, 0)


@pytest.mark.parametrize(
    "cell", drawn.points([c for c in SOME if c.code is None][:4], each=3), ids=lambda cell: cell.title
)
def test_a_call_that_hangs_ends_the_offer_after_five_minutes(cell: Cell) -> None:
    found = run(cell)

    assert (found.unusable, found.lost) == (0, 0)


def test_every_call_of_the_product_is_in_the_matrix() -> None:
    sources = "\n".join(path.read_text() for folder in hardware.__path__ for path in Path(folder).glob("*.py"))
    # The binding names some functions without their version.
    made = {_plain(symbol) for symbol in re.findall(r"NVML\.(nvml\w+)", sources)}

    assert made.difference(ELSEWHERE) == {_plain(call.symbol) for call in CALLS}


def _plain(symbol: str) -> str:
    return re.sub(r"(_v\d|V|WithFlags)$", "", symbol)
