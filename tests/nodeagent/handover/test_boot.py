"""The id of the boot, as both processes read it."""

from pathlib import Path

from nodeagent.handover.files import boot_id


def test_the_boot_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("1c3b\n")
    assert boot_id(tmp_path / "boot_id") == "1c3b"
    assert boot_id(tmp_path / "absent") == ""
