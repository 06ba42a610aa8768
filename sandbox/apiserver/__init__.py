"""A Kubernetes API server in one process, good enough that kubectl and the official client behave as on a cluster.

Served: discovery in both forms, OpenAPI v3, CRUD, lists with pages, watches with bookmarks, WatchList and 410, label
and field selectors, merge, JSON and strategic merge patches, server-side apply with managedFields, status subresources,
generations, finalizers, graceful deletion, dry runs, field validation, definitions with pruning, defaults, validation
and CEL rules, tables, bindings, evictions, events in both groups, leases, priority classes.

Refused plainly, or not there:
- authentication and authorization (everybody may do everything), TLS, admission webhooks and policies, quotas;
- protobuf bodies but those of `kubectl create configmap|namespace|priorityclass|secret|serviceaccount` and `auth can-i`
  (415), CBOR (415), strategic merge patches of custom resources (415, as everywhere), JSON patches of events.k8s.io;
- garbage collection and cascades: propagationPolicy is read past, an owner's dependents stay; a namespace and a
  definition do take their objects along;
- controllers: deployments, jobs and the like are stored and nothing acts on them, disruption budgets are honoured by
  `status.disruptionsAllowed` alone, a new node gets no not-ready taint;
- `scale`, `ephemeralcontainers`, `resize`, `serviceaccounts/token`, logs, exec, attach, port-forward;
- defaults that a definition gets after an object was stored: reading the object does not bring them;
- conversion webhooks (several versions of a definition share one form), CEL cost budgets and CEL type checks,
  normalised quantities (a number becomes text, text stays as it is written), gzip.
"""

from sandbox.apiserver.faults import Delay, Disconnect, Fault, Refuse
from sandbox.apiserver.server import ApiServer

__all__ = ["ApiServer", "Delay", "Disconnect", "Fault", "Refuse"]
