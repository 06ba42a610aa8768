"""The commands of the pages: programs that exist, with the verbs and flags that they have.

kubectl itself and gpuplan's own parser judge theirs. Of helm, which is built for the e2e suite alone, a table says
which flags the pages use; the chart's model judges what they set.
"""

import re
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from cli.__main__ import parser
from deploy.generate.files import walk
from deploy.generate.values import Values
from tests.docs.pages import ROOT, Command, commands

ALL = tuple(dict.fromkeys(commands()))
OTHERS = {
    "make", "python", "python3", "pip", "git", "export", "cd",
    # for one node, as its administrator
    "nvidia-smi", "nvidia-ctk", "nvidia-modprobe", "skopeo",
    # the shell, and behind a pipe
    "for", "do", "done", "cut", "grep", "head", "tail", "jq", "curl",
}  # fmt: skip
"""Programs whose arguments other tests judge, or nothing here can."""
HELM = {
    "install": {"-n", "--set", "--set-string", "-f", "--values", "--create-namespace"},
    "upgrade": {"-n", "--set", "--set-string", "-f", "--values", "--install", "--reset-then-reuse-values"},
    "rollback": {"-n"},
    "template": {"-n", "--set", "-f"},
    "uninstall": {"-n"},
}
KINDS = {
    "gpupartitionplan", "gpupartitionplans", "gpp", "node", "nodes", "pod", "pods", "event", "events", "namespace",
    "lease", "leases", "daemonset", "ds", "deployment", "deploy", "replicaset", "configmap", "crd", "runtimeclass",
    "clusterpolicy",
}  # fmt: skip
OF_KINDS = {"get", "describe", "delete", "label", "annotate", "patch", "edit", "wait"}


def of(program: str) -> list[Command]:
    return [command for command in ALL if command.words[0] == program]


def test_commands_are_found() -> None:
    assert len(of("kubectl")) > 60
    assert len(of("helm")) >= 4
    assert len(of("gpuplan")) >= 4


def test_programs_are_known() -> None:
    known = OTHERS | {"kubectl", "helm", "gpuplan", "gpuplan-controller", "gpuplan-nodeagent"}
    assert [str(command) for command in ALL if command.words[0] not in known] == []


@cache
def kubectl_help(*verb: str) -> str:
    program = Path(sys.executable).with_name("kubectl")
    return subprocess.run([program, *verb], capture_output=True, text=True, timeout=60, check=True).stdout


def flags(words: tuple[str, ...]) -> set[str]:
    return {re.split(r"[=]", word)[0] for word in words if re.match(r"-{1,2}[a-zA-Z]", word)}


def kubectl_flags(verb: tuple[str, ...]) -> set[str]:
    text = kubectl_help(*verb, "--help") + kubectl_help("options")
    return set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)=", text, re.MULTILINE)) | set(
        re.findall(r"^\s+(-\w), --", text, re.MULTILINE)
    )


def without_namespace(command: Command) -> list[str]:
    """The words behind `-n NAMESPACE`, which may come first."""
    words = list(command.words[1:])
    return words[2:] if words[0] == "-n" else words


@pytest.mark.parametrize("command", of("kubectl"), ids=str)
def test_kubectl(command: Command) -> None:
    words = without_namespace(command)
    verb = tuple(words[: 2 if words[0] == "auth" else 1])
    own = command.words[: command.words.index("--")] if "--" in command.words else command.words

    assert flags(own) - kubectl_flags(verb) == set()
    rest = [word for word in own[own.index(verb[-1]) + 1 :] if not word.startswith("-")]
    if verb[0] in OF_KINDS and rest and "--raw" not in own and "-f" not in own:
        at = [part.split("/")[0] for part in rest if not re.search("=", part)]
        assert any(kind in KINDS for kind in at[0].split(",")) or any(part in KINDS for part in at), at
    files = [own[at + 1] for at, word in enumerate(own[:-1]) if word in ("-f", "-k", "--patch-file")]
    ours = [file for file in files if file.split("/")[0] in ("deploy", "examples", "crds")]
    assert [file for file in ours if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("command", of("helm"), ids=str)
def test_helm(command: Command) -> None:
    verb, *rest = without_namespace(command)
    assert flags(tuple(rest)) - HELM[verb] == set()
    paths = {".".join(value.path) for value in walk(Values)}
    given = [rest[at + 1].split("=")[0].replace("\\.", "/") for at, word in enumerate(rest) if word.startswith("--set")]
    assert [key for key in given if not any(key == path or key.startswith(f"{path}.") for path in paths)] == []
    charts = [word for word in rest if word.startswith("deploy/")]
    assert [chart for chart in charts if not (ROOT / chart).exists()] == []


@pytest.mark.parametrize("command", [one for one in of("gpuplan") if one.whole], ids=str)
def test_gpuplan(command: Command) -> None:
    arguments = parser().parse_args(command.words[1:])
    named = [file for file in getattr(arguments, "filename", None) or () if file.startswith("examples")]
    assert [file for file in named if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("command", [one for one in of("gpuplan") if not one.whole], ids=str)
def test_gpuplan_in_a_sentence(command: Command) -> None:
    """Its files may be left out; `--help` then stands for them."""
    verbs = list(takewhile(lambda word: not word.startswith("-"), command.words[1:]))
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*verbs, "--help"] if verbs else command.words[1:])
    assert ended.value.code == 0
