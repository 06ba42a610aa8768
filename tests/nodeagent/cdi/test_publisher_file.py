"""The file of the specification: half written, of another form, unreadable, in a bad folder, or with a rival."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.cdi.publisher import Published, SpecificationPublisher
from nodeagent.handover.cdi import FILE_NAME, named_devices
from nodeagent.handover.files import replace_file
from nodeagent.hardware.driver import ObservedGpu
from sandbox import cdi as runtime
from tests.nodeagent.cdi.node import MIG, WHOLE, CdiNode


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"devices": 1}',
        b"[]",
        b'{"cdiVersion": "0.5.0"}',
        b'{"cdiVersion": "x", "containerEdits": {}, "devices": []}',
    ],
)
def test_half_written_file_is_written_again(node: CdiNode, content: bytes) -> None:
    node.publish(MIG)
    (node.cdi / FILE_NAME).write_bytes(content)
    assert node.publisher.forget(["MIG-a"]) == ""
    assert node.publish(MIG) == Published()
    assert node.nodes("MIG-a")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document | {"cdiVersion": 7},
        lambda document: document | {"devices": [{"name": n, "containerEdits": []} for n in ("MIG-a", "GPU-1")]},
        lambda document: document | {"containerEdits": []},
    ],
)
def test_file_of_another_form_is_neither_kept_nor_trusted(
    node: CdiNode, change: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    node.publish(MIG, WHOLE)
    path = node.cdi / FILE_NAME
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    node.toolkit.unlink()  # the driver's files would be taken from ours
    assert node.publisher.forget(["MIG-a"]) == ""
    assert "MIG-a" not in named_devices(node.cdi)  # type: ignore[operator]
    node.restart()
    node.publish(WHOLE, gpu=ObservedGpu(index=0, uuid="GPU-1", problem="GPU is lost"))
    if path.exists():
        runtime.load(path)


def test_file_that_cannot_be_read_or_removed_keeps_instances_alive(
    node: CdiNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, "Input/output error")

    node.publish(MIG)
    monkeypatch.setattr(Path, "read_text", broken)
    monkeypatch.setattr(Path, "unlink", broken)
    assert "cannot be written" in node.publisher.forget(["MIG-a"])
    assert node.publisher.forget([]) == ""


@pytest.mark.parametrize(("owner", "step"), [(Path, "open"), (os, "fsync"), (Path, "replace")])
def test_crash_while_writing_leaves_the_old_file(
    node: CdiNode, owner: object, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    node.publish(WHOLE)
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(KilledError):
            replace_file(node.cdi / FILE_NAME, b"new")
    assert named_devices(node.cdi) == frozenset({"GPU-1"})
    runtime.load(node.cdi / FILE_NAME)
    node.restart()
    assert node.publish(WHOLE, MIG) == Published()


def test_folder_that_is_missing_is_made(node: CdiNode) -> None:
    folder = node.root / "run" / "cdi"
    node.publisher = SpecificationPublisher(folder, proc=node.proc, folders=(node.cdi, folder))
    assert node.publish(MIG) == Published()
    assert (folder / FILE_NAME).exists()


def test_folder_that_cannot_be_written_advertises_only_what_is_there(node: CdiNode) -> None:
    slices = [replace(WHOLE, id=f"GPU-1::10gb::{number}") for number in range(3)]
    node.publish(*slices[:2])
    (node.cdi / f".{FILE_NAME}.tmp").mkdir()  # opening it for writing fails, for root as well
    found = node.publish(*slices)
    assert list(found.missing) == [slices[2].id]
    assert "cannot be written" in found.problem
    assert "cannot be written" in node.publisher.forget([slices[0].id])
    assert node.publish(*slices[:2]) == Published()


def test_second_writer_is_noticed(node: CdiNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(path: Path, content: bytes) -> None:
        replace_file(path, content.replace(b"MIG-a", b"MIG-z"))

    monkeypatch.setattr("nodeagent.cdi.publisher.replace_file", overtaken)
    found = node.publish(MIG)
    assert "another program writes the CDI specification" in found.missing["MIG-a"]


def test_second_file_of_our_kind_is_named(node: CdiNode) -> None:
    node.publish(MIG)
    copy = node.cdi / "copy.json"
    copy.write_bytes((node.cdi / FILE_NAME).read_bytes())
    with pytest.raises(runtime.CdiError):
        node.nodes("MIG-a")
    assert f"{copy} describes devices of gpuplan.dev/gpu too" in node.publish(MIG).missing["MIG-a"]
    copy.unlink()
    assert node.publish(MIG) == Published()
    assert node.nodes("MIG-a")
