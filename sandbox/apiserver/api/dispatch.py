"""Routes a request to the code that answers it.

Takes a `Request` and returns a `Reply` or an open `Watch`. Must never know about HTTP or threads.
"""

from typing import Final

from sandbox.apiserver.api import discovery, openapi
from sandbox.apiserver.api.reads import read
from sandbox.apiserver.api.requests import Reply, Request, Route, json_reply, parse_route
from sandbox.apiserver.api.watches import Watch
from sandbox.apiserver.api.writes import write
from sandbox.apiserver.errors import ApiError, method_not_allowed, no_such_path
from sandbox.apiserver.lifecycle.context import Cluster, Target
from sandbox.apiserver.objects import Obj, encode

VERSION: Final[Obj] = {"major": "1", "minor": "37", "gitVersion": "v1.37.0+sandbox", "platform": "linux/amd64"}
_HEALTH: Final = ("/healthz", "/livez", "/readyz")
PAGE_NOT_FOUND: Final = Reply(code=404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")
ONLY_AGGREGATED: Final = "the sandbox serves aggregated discovery only: use kubectl 1.30 or newer"
_NEEDS_A_CONTAINER: Final = ("log", "exec", "attach", "portforward")


class Dispatcher:
    """Answers requests on one cluster."""

    def __init__(self, cluster: Cluster, *, bookmark_seconds: float) -> None:
        self._cluster = cluster
        self._bookmark_seconds = bookmark_seconds
        self._documents: dict[tuple[int, str], bytes] = {}

    def answer(self, request: Request) -> Reply | Watch:
        parts = [part for part in request.path.split("/") if part]
        if parts and parts[0] == "api" and len(parts) > 2:
            return self._resource(request, parse_route(parts))
        if parts and parts[0] == "apis" and len(parts) > 3:
            return self._resource(request, parse_route(parts))
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if parts and parts[0] in ("api", "apis"):
            return self._discovery(request, parts)
        return self._document(request, parts)

    def _resource(self, request: Request, route: Route) -> Reply | Watch:
        resource = self._cluster.registry.find(route.group, route.version, route.plural)
        if resource is None:
            raise no_such_path()
        if route.subresource and route.subresource not in resource.subresources:
            if resource.kind == "Pod" and route.subresource in _NEEDS_A_CONTAINER:
                raise ApiError(404, "NotFound", f"the sandbox runs no containers: pods have no {route.subresource}")
            raise no_such_path()
        if route.namespace and not resource.namespaced:
            raise no_such_path()
        target = Target(resource=resource, namespace=route.namespace, name=route.name, subresource=route.subresource)
        if request.method in ("GET", "HEAD"):
            if route.subresource in ("binding", "eviction"):
                raise method_not_allowed()
            return read(self._cluster, request, target, bookmark_seconds=self._bookmark_seconds)
        return write(self._cluster, request, target)

    def _discovery(self, request: Request, parts: list[str]) -> Reply:
        core = parts[0] == "api"
        groups = self._cluster.registry.groups()
        groups = {group: versions for group, versions in groups.items() if (group == "") is core}
        if len(parts) == 1:
            if not discovery.wants_aggregated(request.accept):
                raise ApiError(406, "NotAcceptable", ONLY_AGGREGATED)
            body = encode(discovery.aggregated(groups))
            return Reply(body=body, content_type=discovery.AGGREGATED_TYPE, headers={"Vary": "Accept"})
        group, version = "" if core else parts[1], parts[-1]
        if version not in groups.get(group, {}):
            raise no_such_path()
        group_version = f"{group}/{version}" if group else version
        return json_reply(200, discovery.resource_list(group_version, groups[group][version]))

    def _document(self, request: Request, parts: list[str]) -> Reply:
        if request.path == "/version":
            return json_reply(200, VERSION)
        if request.path.rstrip("/") in _HEALTH:
            return Reply(body=b"ok", content_type="text/plain; charset=utf-8")
        groups = self._cluster.registry.groups()
        if parts == ["openapi", "v3"]:
            return json_reply(200, openapi.index(groups))
        if parts[:2] == ["openapi", "v3"] and len(parts) in (4, 5):
            group = parts[3] if len(parts) == 5 else ""
            resources = groups.get(group, {}).get(parts[-1])
            if resources is not None:
                key = (self._cluster.registry.revision, request.path)
                if key not in self._documents:
                    self._documents[key] = encode(openapi.document(resources))
                headers = {"Cache-Control": "public, immutable", "Vary": "Accept"} if "hash" in request.query else {}
                return Reply(body=self._documents[key], headers=headers)
        return PAGE_NOT_FOUND
