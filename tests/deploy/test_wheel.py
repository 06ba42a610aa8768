"""`pip install gpuplan` without an extra starts every program; only `gpuplan sandbox` needs an extra, and names it.

Builds the wheel, with what is locked and without the package index, and an environment that holds nothing but what is
locked for the product, which needs the index.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def run(*command: Path | str, returncode: int = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=300, check=False)
    assert done.returncode == returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs that an installation without extras has."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (UV, "build", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable)
    run(*build, "--wheel", "--out-dir", folder / "dist", ROOT)
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    install = (UV, "pip", "install", "--quiet", "--no-deps", "--python", folder / "venv" / "bin" / "python")
    run(*install, "--require-hashes", "--requirement", ROOT / "requirements" / "product.txt")
    (wheel,) = (folder / "dist").glob("*.whl")
    run(*install, wheel)
    run(UV, "pip", "check", "--python", folder / "venv" / "bin" / "python")
    return folder / "venv" / "bin"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("gpuplan --help", "COMMAND"),
        ("gpuplan --version", "gpuplan 0."),
        ("gpuplan crds", "kind: CustomResourceDefinition"),
        (f"gpuplan plan -f {ROOT}/examples/what-if/e-two-holes.yaml", "pods placed"),
        ("gpuplan-controller --help", "--kubeconfig"),
        ("gpuplan-controller --version", "gpuplan-controller 0."),
        ("gpuplan-nodeagent --help", "--node-name"),
        ("gpuplan-nodeagent --version", "gpuplan-nodeagent 0."),
        ("gpuplan-nodeagent plugin --help", "--state-dir"),
    ],
)
def test_starts_without_an_extra(programs: Path, words: str, printed: str) -> None:
    program, *arguments = words.split()
    assert printed in run(programs / program, *arguments)


def test_the_sandbox_names_the_extra_that_it_needs(programs: Path) -> None:
    printed = run(programs / "gpuplan", "sandbox", "demo", returncode=2)
    assert printed.endswith("Run: pip install 'gpuplan[sandbox]'\n")
    assert "the package sandbox" not in printed, "the wheel has it, and registers it"
