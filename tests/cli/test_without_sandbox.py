"""Every program starts without the packages of the extras, as after `pip install gpuplan`."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli.__main__ import main
from controller.__main__ import main as controller_main
from nodeagent.__main__ import main as nodeagent_main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "what-if" / "e-two-holes.yaml")
BLOCKED = ("cel", "jsonpatch", "sandbox", "highspy", "grpc_tools", "hypothesis", "pytest")
RUN = """
import importlib.abc, runpy, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
sys.argv[1:] = {arguments}
runpy.run_module({module!r}, run_name="__main__")
"""


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = RUN.format(blocked=BLOCKED, module=module, arguments=list(arguments))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("module", "arguments", "printed"),
    [
        pytest.param("cli", ["--version"], r"^gpuplan 0\.", marks=pytest.mark.thorough),
        pytest.param("cli", ["crds"], "kind: CustomResourceDefinition", marks=pytest.mark.thorough),
        ("cli", ["plan", "-f", EXAMPLE], "pods placed"),
        ("controller", ["--version"], r"^gpuplan-controller \d+\.\d+\.\d+\S*\n$"),
        ("nodeagent", ["--version"], r"^gpuplan-nodeagent \d+\.\d+\.\d+\S*\n$"),
        ("nodeagent.device_plugin", ["--help"], "--state-dir"),
    ],
)
def test_starts_without_the_extras(module: str, arguments: list[str], printed: str) -> None:
    done = run(module, *arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout)


def test_the_sandbox_names_the_package_that_is_missing() -> None:
    done = run("cli", "sandbox", "demo")
    assert done.returncode == 2
    assert done.stderr == "gpuplan: The sandbox needs the package sandbox. Run: pip install 'gpuplan[sandbox]'\n"


def test_a_sandbox_that_is_not_registered_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the image, which has neither the sandbox nor what an installation records of itself."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert main(["sandbox", "demo"]) == 2
    assert capsys.readouterr().err.endswith("needs the package sandbox. Run: pip install 'gpuplan[sandbox]'\n")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "print the CustomResourceDefinitions" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["crds"], ["plan"], ["sandbox"], ["sandbox", "up"], ["sandbox", "run"]])
def test_every_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "examples:\n  gpuplan " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "arguments"), [(controller_main, []), (nodeagent_main, []), (nodeagent_main, ["plugin"])]
)
def test_every_program_s_help_has_examples(
    program: Callable[[Sequence[str]], int], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program([*arguments, "--help"])
    assert ended.value.code == 0
    assert "examples:\n  gpuplan-" in capsys.readouterr().out


@pytest.mark.parametrize("priority", ["0", "high"], ids=["no node for it", "unreadable"])
@pytest.mark.parametrize(("options", "code"), [([], 0), (["--exit-code"], 1)])
def test_the_exit_code_shows_unplaced_pods_on_request(
    options: list[str], code: int, priority: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, uid: p, resourceVersion: '1'}, "
        f"spec: {{priority: {priority}, containers: [{{name: c, image: i, "
        "resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]}, status: {phase: Pending}}"
    )
    assert main(["plan", "-f", str(pod), *options]) == code
    assert main(["plan", "-f", EXAMPLE, "--exit-code"]) == 0


def test_a_gpu_node_without_the_label_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = tmp_path / "node.yaml"
    node.write_text(
        "{apiVersion: v1, kind: Node, metadata: {name: idle-node, labels: {nvidia.com/gpu.product: NVIDIA-A30}}}"
    )
    assert main(["plan", "-f", str(node)]) == 0
    expected = "Node idle-node is left out: it is not enabled: label it gpuplan.dev/gpu-partitioning=mig, mps or auto"
    assert expected in capsys.readouterr().err
