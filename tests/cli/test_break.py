"""`gpuplan sandbox break` has a simulated GPU fail as a real one does."""

from pathlib import Path

import pytest

from cli.__main__ import main
from sandbox.driver import machine
from sandbox.driver.store import Store
from tests.builders.models import H100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return machine.create(tmp_path / "gpus.json", [(H100, machine.GpuOptions())] * 2, "n1").path


@pytest.mark.parametrize(("fault", "lost", "failed_rows"), [("lost", [False, True], 0), ("memory", [False, False], 1)])
def test_one_gpu_fails_and_is_mended(path: Path, fault: str, lost: list[bool], failed_rows: int) -> None:
    assert main(["sandbox", "break", str(path), "1", fault]) == 0
    gpus = Store(path).read()["gpus"]
    assert [gpu["lost"] for gpu in gpus] == lost
    assert [gpu["remapped_rows"][3] for gpu in gpus] == [0, failed_rows]

    assert main(["sandbox", "break", str(path), "1", "mended"]) == 0
    gpus = Store(path).read()["gpus"]
    assert [(gpu["lost"], gpu["remapped_rows"][3]) for gpu in gpus] == [(False, 0)] * 2


@pytest.mark.parametrize(
    ("gpu", "there", "words"), [("2", True, "there is no GPU 2, it has 2"), ("0", False, "no simulated GPUs")]
)
def test_what_is_not_there_is_a_sentence(
    path: Path, capsys: pytest.CaptureFixture[str], gpu: str, there: bool, words: str
) -> None:
    given = path if there else path.with_name("other.json")
    assert main(["sandbox", "break", str(given), gpu, "lost"]) == 2
    assert words in capsys.readouterr().err
