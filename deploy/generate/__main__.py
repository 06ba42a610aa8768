"""`python -m deploy.generate`: the CRD, the chart's generated files, and the manifests that it renders.

`--write` renews them, `--check` fails where one is stale. The manifests need the program `helm`: without `--helm` they
are left alone, and `--check` only compares the digest of the chart that they were rendered from.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from crds.definition import FILE_NAME
from deploy.generate import crd, files, manifests
from deploy.generate.dashboards.pages import pages

ROOT = Path(__file__).parents[2]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.generate", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    parser.add_argument("--helm", type=Path, metavar="FILE", help="the program; renders deploy/manifests as well")
    arguments = parser.parse_args(argv)
    made = {f"deploy/chart/{name}": made for name, made in chart_files().items()}
    made["docs/values.md"], made[f"crds/{FILE_NAME}"] = files.values_page(), crd.text()
    if arguments.write:
        _write(made)  # the chart that helm renders next
    if arguments.helm:
        made |= {f"deploy/manifests/{name}": content for name, content in manifests.rendered(arguments.helm).items()}
    if arguments.write:
        _write(made)
        return 0
    return _report(stale(made, rendered=arguments.helm is not None))


def chart_files() -> dict[str, str]:
    """What is generated inside the chart, by path."""
    return {
        "values.yaml": files.values_yaml(),
        "values.schema.json": files.schema_json(),
        f"crds/{FILE_NAME}": crd.text(),
        **{f"dashboards/{name}": content for name, content in pages().items()},
    }


def stale(made: Mapping[str, str], *, rendered: bool) -> list[str]:
    """Files that are not what would be made now."""
    found = [name for name, content in made.items() if not _is(name, content)]
    if rendered:
        there = {f"deploy/manifests/{path.name}" for path in manifests.FOLDER.iterdir()}
        return sorted({*found, *(there - set(made))})
    return found if manifests.fresh() else [*found, "deploy/manifests"]


def _is(name: str, content: str) -> bool:
    return (ROOT / name).is_file() and (ROOT / name).read_text() == content


def _write(made: Mapping[str, str]) -> None:
    for name, content in made.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(content)


def _report(names: list[str]) -> int:
    if names:
        rendered = any(name.startswith("deploy/manifests") for name in names)
        print(f"stale: {', '.join(names)}. Run `{'make manifests' if rendered else files.RENEW}`", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
