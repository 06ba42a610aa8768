"""Which rights of an installed release its accounts never used.

Takes the release's objects by template, and the events of the audit log; returns a sentence for each right without a
request that it allowed. A right is one verb on one resource, in one namespace and for one name where the rule has them.
Must never take a refused request for a use.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.e2e.rig.controlplane.audit import REFUSED, Event, account
from tests.e2e.rig.controlplane.rights import Raw, bound
from tests.e2e.rig.controlplane.tenants import objects_of

CREATED = 201


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """What an account may do, or has done; of what it may do, an empty namespace or name stands for all."""

    account: str
    verb: str
    group: str
    resource: str
    """With its subresource: pods/status."""
    namespace: str = ""
    name: str = ""

    @property
    def title(self) -> str:
        """The resource as kubectl takes it: leases.coordination.k8s.io."""
        plain, slash, subresource = self.resource.partition("/")
        return (f"{plain}.{self.group}" if self.group else plain) + slash + subresource

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.account} may {self.verb} {self.title}{f' {self.name}' if self.name else ''}{where}"

    def allows(self, used: "Right") -> bool:
        """Whether this right is one by which that was done."""
        same = (self.account, self.verb, self.title) == (used.account, used.verb, used.title)
        return same and self.namespace in ("", used.namespace) and self.name in ("", used.name)


def granted(templates: Mapping[str, str]) -> dict[Right, str]:
    """Every right of a release, with the template that grants it; `templates` have their objects as YAML."""
    return {
        right: template
        for template, text in templates.items()
        for subject, role, namespace in bound(objects_of(text))
        for right in _rights(subject["name"], role["rules"], namespace)
    }


def used(events: Iterable[Event]) -> set[Right]:
    """What accounts were allowed to do."""
    return {right for event in events for right in _done(event)}


def unused(rights: Mapping[Right, str], done: Iterable[Right]) -> list[str]:
    """A sentence for each right that allowed nothing of what was done."""
    seen = frozenset(done)
    return [
        f"{right}: templates/{template} grants it, and nothing used it"
        for right, template in sorted(rights.items())
        if not any(right.allows(one) for one in seen)
    ]


def _rights(who: str, rules: Iterable[Raw], namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(
                            account=who, verb=verb, group=group, resource=resource, namespace=namespace, name=name
                        )


def _done(event: Event) -> Iterator[Right]:
    about, code = event.get("objectRef", {}), event["responseStatus"]["code"]
    if "resource" not in about or code in REFUSED:
        return
    # Server-side apply of what was not there: the API server checks the right to create, too.
    verbs = [event["verb"], "create"] if event["verb"] == "patch" and code == CREATED else [event["verb"]]
    subresource = f"/{about['subresource']}" if "subresource" in about else ""
    for verb in verbs:
        yield Right(
            account=account(event),
            verb=verb,
            group=about.get("apiGroup", ""),
            resource=about["resource"] + subresource,
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
        )
