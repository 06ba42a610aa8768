"""Raises the number of files that this process may have open.

Container runtimes start processes with the usual soft limit of 1,024. Never more than MOST: some libraries walk through
all numbers up to the limit.
"""

import resource

MOST = 65_536


def raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
