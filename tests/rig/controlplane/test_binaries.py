"""Where the programs of a real control plane come from: given assets, the cache, or a build; else what would help."""

import os
import re
from pathlib import Path

import pytest

from tests.e2e.rig.controlplane.binaries import (
    CURRENT,
    ETCD,
    OLDEST,
    PINS,
    SERVERS,
    Binaries,
    Places,
    obtain,
    pinned,
)
from tests.e2e.rig.controlplane.gobuild import Missing

GO = """#!/bin/sh
# Stands for `go mod download` and `go build … -o DIR/ tool` in a folder of pins.
if [ "$1 $2" = "mod download" ]; then
  [ -z "$GO_FETCHES" ] || { echo "go: downloading one"; echo "$GO_FETCHES" >&2; exit 1; }
  exit 0
fi
while [ "$1" != -o ]; do shift; done
echo "$PWD" >> "$GO_CALLS"
[ -z "$GO_FAILS" ] || { echo "undefined: x" >&2; exit 1; }
for name in kube-apiserver kube-controller-manager kube-scheduler kubelet server; do
  printf '#!/bin/sh\\n' > "$2$name"; chmod +x "$2$name"
done
"""


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def assets(folder: Path, *names: str, version: str = "1.36.9") -> Path:
    for name in names:
        script(folder / name, f"#!/bin/sh\necho Kubernetes v{version}\n")
    return folder


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A machine with openssl, a shell and our stand-in of go."""
    script(tmp_path / "bin" / "openssl", "#!/bin/sh\n")
    script(tmp_path / "bin" / "go", GO)
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "GO_CALLS": str(tmp_path / "calls")}
    return Places.of({**environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}, tmp_path)


def with_environ(places: Places, **more: str) -> Places:
    return Places(cache=places.cache, assets=places.assets, environ=(*places.environ, *more.items()))


def message(found: Binaries | Missing) -> str:
    assert isinstance(found, Missing)
    return found.message


def test_built_once_and_taken_from_the_cache_after(places: Places, tmp_path: Path) -> None:
    output: list[str] = []
    first = obtain(None, places, report=output.append)
    second = obtain(CURRENT, places, report=output.append)

    assert isinstance(first, Binaries)
    assert first == second
    assert first.kubernetes == CURRENT
    assert set(first.programs) == {*SERVERS, "etcd"}
    assert all(os.access(path, os.X_OK) for path in first.programs.values())
    assert [Path(call).name for call in (tmp_path / "calls").read_text().split()] == [
        f"kubernetes-v{CURRENT}",
        f"etcd-v{ETCD}",
    ]
    assert len(output) == 2


def test_a_build_of_other_pins_replaces_the_old_one(places: Places) -> None:
    old = places.cache / f"etcd-v{ETCD}-000000000000"
    old.mkdir(parents=True)
    found = obtain(None, places)

    assert isinstance(found, Binaries)
    assert not old.exists()


def test_a_failed_build_says_why_and_leaves_nothing(places: Places) -> None:
    found = obtain(None, with_environ(places, GO_FAILS="yes"))

    assert f"go build of kubernetes-v{CURRENT} failed: undefined: x" in message(found)
    assert isinstance(found, Missing)
    assert found.broken
    assert [path.name for path in places.cache.iterdir() if path.is_dir()] == []
    assert isinstance(obtain(None, places), Binaries)


@pytest.mark.parametrize(
    ("output", "begins", "broken"),
    [
        ("dial tcp: no route to host", "the sources of kubernetes-v1.36.3 could not be fetched: dial tcp", False),
        ("verifying module: checksum mismatch", "what was fetched for kubernetes-v1.36.3 is not what is pinned", True),
    ],
    ids=["no module proxy", "forged"],
)
def test_sources_that_cannot_be_fetched(places: Places, output: str, begins: str, broken: bool) -> None:
    found = obtain(None, with_environ(places, GO_FETCHES=output))

    assert begins in message(found)
    assert "downloading" not in message(found)
    assert isinstance(found, Missing)
    assert found.broken is broken


def test_a_cache_that_cannot_be_made(places: Places, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    assert "XDG_CACHE_HOME names another place" in message(obtain(None, places))


def test_without_go_and_assets_it_says_how_to_get_them(places: Places, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").unlink()
    found = obtain(None, with_environ(places, PATH=str(tmp_path / "bin")))

    assert re.match(
        r"kube-apiserver, kube-controller-manager, kube-scheduler: not built yet, and .*no go", message(found)
    )
    assert "KUBEBUILDER_ASSETS" in message(found)


def test_without_openssl(places: Places, tmp_path: Path) -> None:
    (tmp_path / "bin" / "openssl").unlink()

    assert "no openssl" in message(obtain(None, with_environ(places, PATH=str(tmp_path / "bin"))))


def test_a_version_that_is_not_pinned(places: Places) -> None:
    for version in ("1.29.0", "1.3", "1", "1.36.3.1"):
        assert f"kubernetes-v{version} is not pinned here; there are {OLDEST}, 1.34" in message(obtain(version, places))


def test_a_minor_version_means_the_one_that_is_pinned(places: Places) -> None:
    for version in pinned():
        found = obtain(version.rpartition(".")[0], places)
        assert isinstance(found, Binaries)
        assert found.kubernetes == version


def test_given_assets_are_taken_whole(places: Places, tmp_path: Path) -> None:
    folder = assets(tmp_path / "assets", *SERVERS, "etcd")
    given = Places(cache=places.cache, assets=folder, environ=places.environ)
    found = obtain(None, given)

    assert isinstance(found, Binaries)
    assert found.kubernetes == "1.36.9"
    assert {path.parent for path in found.programs.values()} == {folder}
    assert not (tmp_path / "calls").exists()


def test_what_given_assets_lack_is_built_in_the_same_version(places: Places, tmp_path: Path) -> None:
    folder = assets(tmp_path / "assets", "kube-apiserver", "etcd", version=CURRENT)
    found = obtain(None, Places(cache=places.cache, assets=folder, environ=places.environ))

    assert isinstance(found, Binaries)
    assert found["kube-apiserver"].parent == folder
    assert found["kube-scheduler"].parent.parent == places.cache


def test_given_assets_of_another_version_are_refused(places: Places, tmp_path: Path) -> None:
    folder = assets(tmp_path / "assets", *SERVERS, "etcd")
    given = Places(cache=places.cache, assets=folder, environ=places.environ)

    assert isinstance(obtain("1.36", given), Binaries)
    for version in ("1.30.14", "1.36.3", "1.37", "1.36.9.1"):
        assert f"holds Kubernetes 1.36.9, and {version} was requested" in message(obtain(version, given))


def test_assets_without_an_api_server(places: Places, tmp_path: Path) -> None:
    given = Places(cache=places.cache, assets=tmp_path, environ=places.environ)

    assert f"KUBEBUILDER_ASSETS is {tmp_path}, but no kube-apiserver runs there" in message(obtain(None, given))


def test_a_minor_version_is_pinned_once() -> None:
    minors = [version.rpartition(".")[0] for version in pinned()]
    assert len(minors) == len({*minors})
    assert {CURRENT, OLDEST} <= {*pinned()}
    assert pinned()[0] == OLDEST


@pytest.mark.parametrize("version", pinned())
def test_pins_name_one_version_of_everything(version: str) -> None:
    text = (PINS / f"kubernetes-v{version}" / "go.mod").read_text()
    published = version.replace("1.", "v0.", 1)
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", text, re.M)

    assert f"require k8s.io/kubernetes v{version}" in text or f"\tk8s.io/kubernetes v{version}" in text
    staged = {"1.30": 30, "1.34": 31, "1.36": 33, "1.37": 33}
    assert len(replaced) == staged[version.rpartition(".")[0]]
    assert all(module == target and found == published for module, target, found in replaced)
    assert "./" not in text
