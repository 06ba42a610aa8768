"""The stand-in of NVIDIA's toolkit writes what nvidia-ctk printed."""

from pathlib import Path

import yaml

from sandbox.driver import toolkit

PRINTED = Path(__file__).with_name("management-cdi.yaml")


def test_the_document_is_that_of_nvidia_ctk() -> None:
    printed = yaml.safe_load(PRINTED.read_text())

    assert toolkit.document("/run/nvidia/driver", "580.95.05", (0, 1)) == printed


def test_every_file_that_it_mounts_is_there(tmp_path: Path) -> None:
    path = toolkit.install(tmp_path / "driver", tmp_path / "cdi", "580.1.2")

    mounts = yaml.safe_load(path.read_text())["containerEdits"]["mounts"]
    assert mounts
    assert all(Path(mount["hostPath"]).exists() for mount in mounts)
