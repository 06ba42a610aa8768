"""Asks the API server which pods this node has now: a watch may be late, and an absence in it proves nothing.

Takes a client and the node's name, returns the UIDs as the kubelet has them, or a `NoAnswer` with the reason. Without a
resource version, so that the answer is what most of etcd has agreed on, never what one server remembers.
"""

import json

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube.budget import RequestBudget
from kube.errors import ApiError
from kube.transport import request
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.pods import kubelet_uid


def fresh_uids(api: ApiClient, node_name: str, budget: RequestBudget) -> frozenset[str] | NoAnswer:
    query = {"fieldSelector": f"spec.nodeName={node_name}"}
    try:
        with budget.request() as timeouts:
            answer = json.loads(request(api, "GET", paths.PODS, query=query, timeouts=timeouts))
            return frozenset(kubelet_uid(pod["metadata"]) for pod in answer["items"])
    except (ApiError, ValueError, LookupError, TypeError) as error:
        return NoAnswer(reason=f"the API server does not list the pods of this node: {error}")
