"""`gpuplan …`: the commands people type.

Parses arguments and calls the command; expected failures are one sentence on stderr and an exit code, never a
traceback.
"""

import argparse
import os
import sys

from cli import demo, plan, sandbox_commands
from cli.manifests import ManifestError
from crds.definition import text
from kube.errors import ApiError
from kube.settings import SettingsError
from partitioning import __version__


def parser() -> argparse.ArgumentParser:
    """Every command with its help."""
    root = argparse.ArgumentParser(prog="gpuplan", description="Partitions the GPUs of a Kubernetes cluster.")
    root.add_argument("--version", action="version", version=f"gpuplan {__version__}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    crds = commands.add_parser("crds", help="print the CRDs, ready for kubectl apply -f -")
    crds.set_defaults(run=_print_crds)
    plan.add_plan(commands)
    sandbox = commands.add_parser("sandbox", help="a simulated GPU cluster on this machine")
    kinds = sandbox.add_subparsers(dest="sandbox_command", required=True, metavar="COMMAND")
    sandbox_commands.add_up(kinds)
    sandbox_commands.add_run(kinds)
    demo.add_demo(kinds)
    return root


def _print_crds(_: argparse.Namespace) -> int:
    print(text(), end="")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parser().parse_args(argv)
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
