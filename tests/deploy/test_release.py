"""`make release`: its parts, on made-up packages and charts. tests/e2e/containers makes the whole, and installs it."""

import gzip
import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest

from deploy.release import contents, debian
from deploy.release.__main__ import main, notes
from deploy.release.chart import package, released
from deploy.release.oci import Image, Layout, tar_of
from partitioning import __version__

DIGEST = "sha256:" + "5" * 64
IMAGE = Image(environment={"PATH": "/bin"}, user="65532:65532", labels={"a": "b"}, created="2026-01-01T00:00:00Z")


def deb(*files: tuple[str, str]) -> bytes:
    """A package of Debian with these files."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, text in files:
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    members = (
        (b"debian-binary", b"2.0\n"),
        (b"control.tar.xz", b"odd"),
        (b"data.tar.xz", lzma.compress(held.getvalue())),
    )
    content = b"!<arch>\n"
    for member, body in members:
        content += (
            member.ljust(16)
            + b"0".ljust(12)
            + b"0".ljust(6) * 2
            + b"100644".ljust(8)
            + str(len(body)).encode().ljust(10)
        )
        content += b"`\n" + body + b"\n" * (len(body) % 2)
    return content


def test_a_package_is_laid_out_without_its_documentation_but_with_its_licence(tmp_path: Path) -> None:
    file = tmp_path / "x.deb"
    file.write_bytes(
        deb(("usr/bin/x", "program"), ("usr/share/doc/x/copyright", "free"), ("usr/share/doc/x/news", "old"))
    )
    debian.unpack(file, tmp_path / "root")
    found = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert found == {"usr/bin/x", "usr/share/doc/x/copyright"}


def test_a_package_that_is_not_the_listed_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(deb(("usr/bin/x", "program")))
    other = debian.Package("amd64", "x", "1", "0" * 64, "x.deb")
    with pytest.raises(ValueError, match=r"x\.deb has the hash [0-9a-f]{64}, and not 0{64} of packages\.txt"):
        debian.fetch(other, tmp_path.as_uri(), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*")) or not (tmp_path / "cache").exists()


def test_all_that_packages_depend_on_is_listed() -> None:
    index = {
        "a": {"Depends": "b (>= 1), c | d, dpkg", "Pre-Depends": "e:any"},
        "b": {"Depends": "a"},
        "c": {},
        "e": {"Depends": "debconf (>= 0.5) | debconf-2.0"},
    }
    assert debian.closure(index, ("a",)) == ["a", "b", "c", "e"]


def test_the_list_has_the_same_packages_for_each_architecture_and_a_python_that_the_image_promises() -> None:
    text = debian.LIST.read_text()
    names = [{package.name for package in debian.read(text, architecture)} for architecture in debian.ARCHITECTURES]
    assert names[0] == names[1] >= set(debian.ROOTS)
    assert "://" not in text


def test_a_mirror_is_the_machines_own(tmp_path: Path) -> None:
    sources = tmp_path / "debian.sources"
    with pytest.raises(LookupError, match="set DEBIAN_MIRROR"):
        debian.mirror({}, sources)
    sources.write_text("Types: deb\nURIs: http://mirror.example.com/debian/\nSuites: stable\n")
    assert debian.mirror({}, sources) == "http://mirror.example.com/debian"
    assert debian.mirror({"DEBIAN_MIRROR": "http://other.example.com/"}, sources) == "http://other.example.com"


def test_an_image_is_an_index_of_manifests_whose_every_blob_is_named_by_its_hash(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    index = layout.image(IMAGE, {"arm64": [b"base", b"top"], "amd64": [b"base", b"top"]})
    layout.close("1.0", index)
    for blob in (tmp_path / "image/blobs/sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name

    def read(descriptor: dict[str, str]) -> bytes:
        return (tmp_path / "image/blobs" / descriptor["digest"].replace(":", "/")).read_bytes()

    (entry,) = json.loads((tmp_path / "image/index.json").read_text())["manifests"]
    assert entry == {**index, "annotations": {"org.opencontainers.image.ref.name": "1.0"}}
    manifests = json.loads(read(entry))["manifests"]
    assert [manifest["platform"]["architecture"] for manifest in manifests] == ["amd64", "arm64"]
    for manifest in manifests:
        content = json.loads(read(manifest))
        config = json.loads(read(content["config"]))
        layers = [gzip.decompress(read(layer)) for layer in content["layers"]]
        assert layers == [b"base", b"top"]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        assert config["config"]["User"] == "65532:65532"


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    archives = []
    for number, order in enumerate((("a", "b"), ("b", "a"))):
        root = tmp_path / str(number) / "root"
        root.mkdir(parents=True)
        for name in order:
            (root / name).write_text(name)
        (root / "link").symlink_to("a")
        archives.append(tar_of(root, at=1_700_000_000))
    assert archives[0] == archives[1]


def test_the_chart_names_the_image_that_it_was_released_with(tmp_path: Path) -> None:
    metadata = released(tmp_path / "gpuplan", __version__, "registry.example.com/gpuplan", DIGEST)
    values = (tmp_path / "gpuplan/values.yaml").read_text()
    assert f"  digest: {DIGEST}\n" in values
    assert "  repository: registry.example.com/gpuplan\n" in values
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(package(tmp_path / "gpuplan", 0)))) as tar:
        assert {"gpuplan/Chart.yaml", "gpuplan/values.yaml", "gpuplan/templates/40-controller.yaml"} <= set(
            tar.getnames()
        )
    assert metadata["version"] == __version__


def test_the_list_of_contents_names_every_locked_package() -> None:
    document = json.loads(contents.spdx("1.0", "2026-01-01T00:00:00Z"))
    identifiers = [package["SPDXID"] for package in document["packages"]]
    assert len(set(identifiers)) == len(identifiers)
    assert {"grpcio", "libc6", "gpuplan"} <= {package["name"] for package in document["packages"]}


@pytest.mark.parametrize(
    ("text", "added", "said"),
    [
        ("# Changelog\n\n## 1.1.0 - 2026-02-02\n\nNew.\n\n## 1.0.0\n\nOld.\n", [], "New."),
        ("# Changelog\n\n## 1.0.0\n\nOld.\n", [("Fixed", "- A hole.\n")], "### Fixed\n\n- A hole."),
        ("# Changelog\n\n## Unreleased\n\nWords.\n", [("Fixed", "- A hole.\n")], "Words.\n\n### Fixed\n\n- A hole."),
    ],
)
def test_the_notes_are_the_changelogs_part(text: str, added: list[tuple[str, str]], said: str) -> None:
    found = notes("1.1.0", DIGEST, "registry.example.com/gpuplan", text, added)
    assert found == f"# gpuplan 1.1.0\n\nImage: `registry.example.com/gpuplan@{DIGEST}`\n\n{said}\n"


@pytest.mark.parametrize(
    ("version", "said"), [("9.9.9", "the version of this checkout is"), (__version__, "changes that are in no commit")]
)
def test_what_is_no_release_is_refused(
    version: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.release.__main__._git", lambda *_words: " M README.md")
    assert main(["--version", version, "--out", str(tmp_path / "out"), "--helm", "helm"]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
