"""A Kubernetes API server in one process, good enough that kubectl and the official client behave as on a cluster.

It serves aggregated discovery, OpenAPI v3, objects with lists in pages, watches with bookmarks and 410, label and field
selectors, merge, JSON and strategic merge patches, server-side apply with managedFields, status subresources,
generations, finalizers, graceful deletion, dry runs, field validation, definitions with pruning, defaults, validation
and CEL rules, tables, bindings, evictions, events, leases and priority classes.

It refuses, or does not have:
- authentication and authorization (all requests are allowed), TLS, admission webhooks, policies (but those of a Node
  that gpuplan's agent writes, on request), quotas, disruption budgets;
- kinds that neither the product nor the sandbox reads, such as Deployments, Jobs and RBAC (404);
- protobuf (415, with what to do instead), CBOR, bodies in YAML, strategic merge patches of custom resources (415);
- deletion of whole collections (405), WatchList (422), metadata-only forms, discovery per group (406);
- schemas of definitions with words that it does not evaluate, such as oneOf or multipleOf (422);
- garbage collection and cascades: propagationPolicy has no effect, an owner's dependents stay; a namespace and a
  definition delete their objects with them;
- controllers: ReplicaSets and StatefulSets are stored and nothing acts on them, a new node gets no not-ready taint;
- `scale`, `ephemeralcontainers`, `resize`, `serviceaccounts/token`, logs, exec, attach, port-forward;
- defaults that a definition gets after an object was stored: reading the object does not add them;
- definitions with several versions (422), CEL cost budgets and CEL type checks,
  normalised quantities (a number becomes text, text stays as it is written), gzip.
"""

from sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer"]
