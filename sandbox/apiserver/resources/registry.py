"""What is served right now: the builtin resources and those of accepted CRDs.

Comes in: resources. Goes out: lookups by path and by group, in the order of discovery. Must never hold objects.
"""

from collections.abc import Iterable

from sandbox.apiserver.resources.resource import Resource

Groups = dict[str, dict[str, list[Resource]]]


class Registry:
    """Resources by group, version and plural."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self.revision = 0
        """Changes with every change, so that documents made from the registry can be kept."""
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._resources[(resource.group, resource.version, resource.plural)] = resource
        self.revision += 1

    def remove(self, group: str, plural: str) -> None:
        """All versions of one resource."""
        for key in [key for key in self._resources if (key[0], key[2]) == (group, plural)]:
            del self._resources[key]
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def namespaced(self) -> list[Resource]:
        return [resource for resource in self._resources.values() if resource.namespaced]

    def groups(self) -> Groups:
        """Group, version, resources; the core group is ''."""
        found: Groups = {}
        for resource in self._resources.values():
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found
