"""Which resource names a kubelet accepts from a device plugin.

In: a name. Out: whether it is a valid extended resource name by the API's rules. `nvidia.com/mig-1g.10gb+me` is not
one, which is why resource names write `+` as `.`.
"""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUOTA_PREFIX = "requests."


def is_extended_resource(name: str) -> bool:
    """A domain of its own, and still a qualified name once quota puts `requests.` before it."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    domain, _, local = (_QUOTA_PREFIX + name).partition("/")
    return (
        len(domain) <= 253
        and len(local) <= 63
        and _DOMAIN.fullmatch(domain) is not None
        and _NAME.fullmatch(local) is not None
    )
