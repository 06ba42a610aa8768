"""`python -m tests.crashes.explore [--transitions NUMBER] [--seconds AT MOST] [--seed SEED]`.

Prints what was harmed with the shortest schedule for it, then the figures as JSON. Exit code 1 where there was harm.
"""

import argparse
import json
import logging
import os
import sys

from tests import folders
from tests.crashes.explore.explorer import explore, replay, shrink


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes.explore", description=__doc__)
    parser.add_argument("--transitions", type=int, default=10**6, help="end after so many distinct ones")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no schedule after so many")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    found = explore(given.seed, seconds=given.seconds, transitions=given.transitions)
    for harm in found.harms:
        print(f"harmed: {harm}")
        shorter = shrink(harm.schedule)
        print(f"shortest: {', '.join(map(str, shorter))}: {replay(shorter)}")
    print(json.dumps(found.figures()))
    return int(bool(found.harms))


if __name__ == "__main__":
    folders.use_memory()
    logging.disable()
    setattr(os, "fsync", lambda _descriptor: None)  # noqa: B010 - nothing here outlives the run
    sys.exit(main(sys.argv[1:]))
