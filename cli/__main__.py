"""Runs `gpuplan …`, the commands for people.

Parses arguments and calls the command; expected failures are one sentence on stderr and an exit code, never a
traceback. The sandbox is found by its entry point, and only for its own commands: it needs packages that a cluster does
not, and is not in the image.
"""

import argparse
import io
import os
import sys
from importlib.metadata import entry_points

from cli import convert, plan
from cli.examples import add_command
from cli.manifests import ManifestError
from crds.definition import text
from kube.errors import ApiError
from kube.settings import SettingsError
from partitioning import __version__


def parser(*, with_sandbox: bool = True) -> argparse.ArgumentParser:
    """Every command with its help; raises ImportError where the sandbox is requested and not installed."""
    root = argparse.ArgumentParser(
        prog="gpuplan",
        description="Splits NVIDIA GPUs into MIG instances and MPS slices as pods request them. "
        "These commands need no GPU and, but for their own sandbox, no cluster.",
    )
    root.add_argument("--version", action="version", version=f"gpuplan {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    crds = add_command(
        commands,
        "crds",
        "print the CustomResourceDefinitions, ready for kubectl",
        examples=("gpuplan crds | kubectl apply --server-side -f -",),
    )
    crds.set_defaults(run=_print_crds)
    plan.add_plan(commands)
    convert.add_convert(commands)
    sandbox = add_command(
        commands,
        "sandbox",
        "run a simulated GPU cluster on this machine",
        examples=("gpuplan sandbox demo", "gpuplan sandbox up -f examples/mig"),
    )
    if with_sandbox:
        found = tuple(entry_points(group="gpuplan.commands", name="sandbox"))
        if not found:
            raise ModuleNotFoundError(name="sandbox")
        found[0].load()(sandbox)
    return root


def _print_crds(_: argparse.Namespace) -> int:
    print(text(), end="")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name in a file may have what this terminal cannot show
    try:
        root = parser(with_sandbox="sandbox" in given)
    except ModuleNotFoundError as error:
        print(
            f"gpuplan: The sandbox needs the package {error.name}. Run: pip install 'gpuplan[sandbox]'", file=sys.stderr
        )
        return 2
    arguments = root.parse_args(given)
    if arguments.command is None:
        root.print_help()
        return 2
    return perform(arguments)


def perform(arguments: argparse.Namespace) -> int:
    """Run a parsed command; an expected failure becomes one sentence and exit code 2."""
    try:
        return int(arguments.run(arguments))
    except (ManifestError, SettingsError, ApiError) as error:
        print(f"gpuplan: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough, as in `gpuplan plan … | head`; at exit nothing must be written either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
