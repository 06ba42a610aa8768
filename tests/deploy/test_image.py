"""The image's content: deploy/image builds it here for this Python, and its programs start from it alone.

Needs the package index, as the virtual environment of these tests did. tests/e2e/containers runs the released image.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BASE_PYTHON = Path(sys.base_prefix) / "bin" / "python3"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("image") / "gpuplan"
    uv = {"UV": str(Path(sys.executable).with_name("uv")), "PLATFORM": f"--python {sys.executable}"}
    environ = {**os.environ, **uv, "PYTHON": sys.executable}
    for script in ("dependencies.sh", "product.sh"):
        run([str(ROOT / "deploy" / "image" / script), str(found)], 0, **environ)
    return found


def run(command: list[str], returncode: int = 0, **environ: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd="/", timeout=300, check=False)
    assert done.returncode == returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "returncode", "printed"),
    [
        ("gpuplan crds", 0, "kind: CustomResourceDefinition"),
        ("gpuplan --version", 0, "gpuplan 0."),
        ("gpuplan sandbox demo", 2, "Run: pip install 'gpuplan[sandbox]'"),
        ("gpuplan-controller --version", 0, "gpuplan-controller 0."),
        ("gpuplan-nodeagent --version", 0, "gpuplan-nodeagent 0."),
        ("gpuplan-nodeagent plugin --version", 0, "gpuplan-nodeagent 0."),
    ],
)
def test_every_program_starts_from_the_image_alone(prefix: Path, words: str, returncode: int, printed: str) -> None:
    """With -S the interpreter has no packages but those of PYTHONPATH."""
    program, *arguments = words.split()
    command = [str(BASE_PYTHON), "-S", str(prefix / "bin" / program), *arguments]
    assert printed in run(command, returncode, PYTHONPATH=str(prefix / "lib"), PYTHONSAFEPATH="1")


REQUEST = """
import sys
import controller.__main__, nodeagent.__main__
from kube import clients, errors, transport
try:
    transport.request(clients.load(sys.argv[1]), "GET", "/api")
except errors.Unavailable as error:
    print(error)
"""


def test_its_part_of_the_kubernetes_client_sends_requests(prefix: Path, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {token: t}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    command = [str(BASE_PYTHON), "-S", "-c", REQUEST, str(config)]
    assert "Connection refused" in run(command, PYTHONPATH=str(prefix / "lib"), PYTHONSAFEPATH="1")


def test_it_holds_the_product_and_what_is_locked_for_it(prefix: Path) -> None:
    folders = {path.name for path in (prefix / "lib").iterdir() if path.is_dir()}
    shipped = set(PROJECT["tool"]["importlinter"]["root_packages"]) - {"sandbox"}
    assert shipped <= folders
    assert not {"sandbox", "tests", "benchmarks", "bin", "pytest", "cel"} & folders
    locked = re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    installed = {name.removesuffix(".dist-info") for name in folders if name.endswith(".dist-info")}
    assert installed == {f"{name.replace('-', '_')}-{version}" for name, version in locked}
    assert {path.name for path in (prefix / "bin").iterdir()} == set(PROJECT["project"]["scripts"])


def test_nothing_is_left_to_compile_on_a_read_only_file_system(prefix: Path) -> None:
    sources = [path for path in (prefix / "lib" / "controller").rglob("*.py")]
    assert sources
    assert [path for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))] == []


def test_it_is_as_large_as_its_page_says(prefix: Path) -> None:
    size = sum(path.stat().st_size for path in (prefix / "lib").rglob("*") if path.is_file())
    assert size < 80e6, "deploy/README.md states the size"
