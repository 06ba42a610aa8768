"""`python -m tests.crashes [--random NUMBER] [--seed SEED] [--story NAME ...] [--seconds AT MOST]`.

Prints every run that was harmed or ended otherwise, then the figures as JSON. Exit code 1 where there was one.
"""

import argparse
import json
import logging
import os
import sys

from tests import folders
from tests.crashes import run


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--random", type=int, default=0, metavar="NUMBER", help="so many drawn runs; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--story", action="append", choices=run.ALL, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    given = parser.parse_args(words)
    found = run.run(given.random, given.seed, given.story or run.ALL, given.seconds)
    for title, runs in (("harmed", found.harmed), ("other end", found.other_end)):
        for text in runs:
            print(f"{title}: {text}")
    print(json.dumps(found.figures()))
    return int(bool(found.harmed or found.other_end))


if __name__ == "__main__":
    folders.use_memory()
    logging.disable()
    setattr(os, "fsync", lambda _descriptor: None)  # noqa: B010 - power cuts are simulated
    sys.exit(main(sys.argv[1:]))
