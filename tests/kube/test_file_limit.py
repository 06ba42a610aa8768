"""The number of files that a process may have open."""

import resource
import subprocess
import sys

import pytest

from kube.file_limit import MOST, raise_file_limit


@pytest.mark.parametrize(("soft", "hard", "after"), [(256, 512, 512), (512, 512, 512)])
def test_it_is_raised_to_what_is_allowed(soft: int, hard: int, after: int) -> None:
    program = (
        "import resource, kube.file_limit as f;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); f.raise_file_limit();"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"({after}, {hard})\n"


def test_it_is_not_raised_without_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.update(now=new))
    raise_file_limit()
    assert limits["now"] == (MOST, resource.RLIM_INFINITY)
    raise_file_limit()
    assert limits["now"] == (MOST, resource.RLIM_INFINITY)
