"""Parts of the chart's values that several keys share: kinds of text, the image, accounts, tolerations, resources.

Each is a type with defaults and meanings, as in `values`. Nothing here reads a file.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from kube.settings import Section

Name: TypeAlias = Annotated[str, Field(pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
MapName: TypeAlias = Annotated[str, Field(pattern="^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)]
Texts: TypeAlias = dict[str, str]
Quantity: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")] | int | float
Directory: TypeAlias = Annotated[str, Field(pattern="^/[^:]*[^/:]$")]
Port: TypeAlias = Annotated[int, Field(ge=1024, le=65_535)]
Profile: TypeAlias = Annotated[str, Field(pattern=r"^[1-9][0-9]*g\.[0-9]+gb")]
PRIORITY = "system-node-critical"


class Image(Section):
    """Which image all programs run."""

    repository: Annotated[str, Field(pattern="^([a-z0-9][^ @]*)?$")] = ""
    """Registry and name. Needed where the chart is of no release that names its image."""
    tag: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$")] = ""
    """Empty: the version of the chart."""
    digest: Annotated[str, Field(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    """sha256:…; used instead of the tag."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """Always, IfNotPresent or Never."""


class Namespace(Section):
    """The namespace that gpuplan is installed into."""

    create: bool = False
    """Render the Namespace, with the Pod Security label that its pods need. `helm install` needs it earlier: false."""


class Account(Section):
    """A service account. Roles and admission policies name it."""

    name: Name
    """Its name in the namespace of the release."""
    annotations: Texts = {}
    """Of the ServiceAccount."""


class Toleration(Section):
    """As in a pod."""

    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = None


class Resources(Section):
    """As in a container."""

    requests: dict[str, Quantity] = {}
    """By which pods are scheduled."""
    limits: dict[str, Quantity] = {}
    """More is not given; null takes one away."""


def resources(cpu: str, memory: str, limit: str) -> Resources:
    return Resources(requests={"cpu": cpu, "memory": memory}, limits={"memory": limit})
