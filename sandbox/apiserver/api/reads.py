"""Answers GET: one object, a list, a watch.

Takes a request and its target, and returns a reply. A list at a version that is not written yet is 504, without the
wait of a real server.
"""

from sandbox.apiserver.api.representation import many, one
from sandbox.apiserver.api.requests import Reply, Request, json_reply, wants_table
from sandbox.apiserver.api.watches import Watch, WatchOptions
from sandbox.apiserver.errors import bad_request, forbidden_field, invalid, too_large_resource_version
from sandbox.apiserver.lifecycle.context import Cluster, Target, entry_of
from sandbox.apiserver.storage.listing import ListOptions, list_page
from sandbox.apiserver.storage.selectors import Predicate, selector


def read(cluster: Cluster, request: Request, target: Target, *, bookmark_seconds: float) -> Reply | Watch:
    """The reply; for a watch the watch itself, whose stream the caller opens."""
    if request.is_watch:
        return _watch(cluster, request, target, bookmark_seconds)
    if target.name:
        _check_version(cluster, request)
        entry = entry_of(cluster, target)
        if wants_table(request.accept):
            return json_reply(200, one(target.resource, entry.obj, _include(request), as_table=True))
        return Reply(body=entry.encoded)
    return _list(cluster, request, target)


def _include(request: Request) -> str:
    return request.query.get("includeObject") or "Metadata"


def _predicate(request: Request, target: Target) -> Predicate | None:
    query = dict(request.query)
    if target.name:
        own = f"metadata.name={target.name}"
        query["fieldSelector"] = f"{query['fieldSelector']},{own}" if query.get("fieldSelector") else own
    return selector(query, target.resource.selectable)


def _list(cluster: Cluster, request: Request, target: Target) -> Reply:
    matches = _predicate(request, target)
    _check_version(cluster, request)
    if request.query.get("resourceVersionMatch"):
        raise bad_request("the sandbox lists the newest state only, without resourceVersionMatch")
    options = ListOptions(
        namespace=target.namespace,
        matches=matches,
        limit=max(request.number("limit"), 0),
        continue_token=request.query.get("continue", ""),
    )
    entries, metadata = list_page(cluster.store.collection(target.resource.collection), options, cluster.store.version)
    as_table = wants_table(request.accept)
    return Reply(body=many(target.resource, entries, metadata, _include(request), as_table=as_table))


def _check_version(cluster: Cluster, request: Request) -> None:
    """A version that is not written yet is one of a server before this one."""
    wanted = request.number("resourceVersion")
    if cluster.store.version < wanted:
        raise too_large_resource_version(wanted, cluster.store.version)


def _watch(cluster: Cluster, request: Request, target: Target, bookmark_seconds: float) -> Watch:
    version = request.query.get("resourceVersion") or "0"
    if not version.isdigit():
        raise bad_request(f'invalid resource version "{version}": strconv.ParseUint: invalid syntax')
    if "sendInitialEvents" in request.query:  # clients list and watch instead, as they do with servers before 1.32
        detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise invalid("meta.k8s.io", "ListOptions", "", [forbidden_field("sendInitialEvents", detail)])
    options = WatchOptions(
        resource=target.resource,
        namespace=target.namespace,
        matches=_predicate(request, target),
        start=int(version),
        bookmarks=request.flag("allowWatchBookmarks"),
        timeout_seconds=max(request.number("timeoutSeconds"), 0),
        bookmark_seconds=bookmark_seconds,
        as_table=wants_table(request.accept),
        include=_include(request),
    )
    return Watch(cluster.store, options)
