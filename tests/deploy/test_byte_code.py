"""Byte code is made by the image's own Python, or the release is refused; it names the places that the image has."""

import platform
import sys
from pathlib import Path

import pytest

from deploy.release.layers import PLATFORMS, PREFIX, PYTHON, Builder

HERE = next(name for name, (machine, _) in PLATFORMS.items() if machine == platform.machine())
RUNS = f'#!/bin/sh\nshift 3\nunset PYTHONHOME\nexec {sys.executable} "$@"\n'
"""In the place of the dynamic linker: what follows its option and the program goes to this Python."""


def builder(folder: Path, linker: str) -> Builder:
    """With a base image whose Python is started by this script."""
    program = folder / HERE / "usr" / PLATFORMS[HERE][1]
    program.parent.mkdir(parents=True)
    program.write_text(linker)
    program.chmod(0o755)
    return Builder(uv=Path("uv"), cache=folder / "cache", scratch=folder, at=0)


def source(folder: Path) -> Path:
    found = folder / "product" / PREFIX / "lib" / "module.py"
    found.parent.mkdir(parents=True)
    found.write_text("def where():\n    return __file__\n")
    return found


def test_byte_code_is_never_checked_against_its_source_and_does_not_say_where_it_was_made(tmp_path: Path) -> None:
    module = source(tmp_path)
    builder(tmp_path, RUNS)._compile(module.parent, tmp_path / "product")
    (made,) = module.parent.rglob("*.pyc")
    content = made.read_bytes()
    assert int.from_bytes(content[4:8], "little") == 0b01, "PEP 552: by hash, unchecked"
    assert f"/{PREFIX}/lib/module.py".encode() in content
    assert str(tmp_path).encode() not in content


@pytest.mark.parametrize("linker", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\nexit 0\n"], ids=["fails", "does nothing"])
def test_a_release_without_byte_code_is_refused(tmp_path: Path, linker: str) -> None:
    """On the read-only file system of the image each start would compile everything again, and say nothing."""
    module = source(tmp_path)
    with pytest.raises(ValueError, match=rf"no byte code was made in .*{PREFIX}/lib, by .*{PLATFORMS[HERE][1]}"):
        builder(tmp_path, linker)._compile(module.parent, tmp_path / "product")


def test_the_python_of_the_image_is_new_enough() -> None:
    assert tuple(map(int, PYTHON.split("."))) >= (3, 13)
