"""nos' own test cases on our planner: `python -m benchmarks.nos.scenarios FILE`.

FILE holds groups of cases as data (tests/benchmarks/data has some). Those of its planner, of MIG and of MPS are run
where model, profile and placement exist, the others are listed with the reason. A case holds where at least as many
pods are placed as nos expects (which slices stay may differ), on layouts that can exist and that keep what is in use,
checked without the planner. Exit code 1 if one does not.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.nos.cases import Case, NotRun, read_case
from benchmarks.nos.cluster import snapshot
from benchmarks.replay import BrokenError, applied, bound
from controller.planning import plan

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One case. `problem` is empty where it holds; `reason` is why it was not run."""

    group: str
    case: str
    name: str
    placed: int = 0
    expected: int = 0
    problem: str = ""
    reason: str = ""

    @property
    def line(self) -> str:
        title = f"{self.group:26} {self.case:5}"
        if self.reason:
            return f"-      {title} not run: {self.reason}"
        head = "ok    " if not self.problem else "SHORT "
        tail = f": {self.problem}" if self.problem else ""
        return f"{head} {title} {self.placed} placed, nos {self.expected}{tail}  ({self.name})"


def verdicts(content: Raw) -> Iterator[Verdict]:
    """Every case of a file, in its order."""
    for group, body in content.items():
        cases = body.get("cases") if isinstance(body, Mapping) else None
        if isinstance(cases, list):
            yield from (judge(str(group), raw) for raw in cases)
        elif cases is not None:
            yield Verdict(group=str(group), case="?", name="", reason="not understood: cases must be a list")


def judge(group: str, raw: object) -> Verdict:
    """Run one case."""
    titled = raw if isinstance(raw, Mapping) else {}
    case, name = str(titled.get("id", "?")), str(titled.get("name", ""))
    found = read_case(group, raw)
    if isinstance(found, NotRun):
        return Verdict(group=group, case=case, name=name, reason=found.reason)
    placed, problem = _run(found)
    if not problem and placed < found.expected:
        problem = f"{found.expected - placed} fewer"
    return Verdict(group=group, case=case, name=name, placed=placed, expected=found.expected, problem=problem)


def _run(case: Case) -> tuple[int, str]:
    """How many pods are placed, and what is wrong with how."""
    cluster = snapshot(case.servers, case.pending)
    result = plan(cluster)
    try:
        after, _ = applied(cluster, result)
        bound(after, {one.uid: one.node for one in result.placed})
    except BrokenError as error:
        return len(result.placed), f"impossible: {error}"
    return len(result.placed), ""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nos.scenarios", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args(argv)
    try:
        content = yaml.safe_load(arguments.file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        print(f"{arguments.file}: cannot be read: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if not isinstance(content, Mapping):
        print(f"{arguments.file}: holds no groups of cases, such as planner_mig: {{cases: [...]}}", file=sys.stderr)
        return 2
    found = list(verdicts(content))
    print(*(one.line for one in found), sep="\n")
    run = [one for one in found if not one.reason]
    short = [one for one in run if one.problem]
    print(f"{len(found)} cases: {len(run)} run, {len(short)} fall short, {len(found) - len(run)} not run")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
