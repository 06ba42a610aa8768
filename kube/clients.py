"""The one place that builds API clients: from a kubeconfig, from a pod's service account, or for a bare URL.

Returns an `ApiClient` of the official package that requests gzip, probes idle connections and never retries by itself:
its default retries would stretch every time-out fourfold and sleep inside a request. A configuration that cannot
be used raises `UnusableConfigError`, a sentence for people. Only `__main__` modules call this.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.utils.keepalive import tcp_keepalive_socket_options

from kube.yaml_text import BROKEN

CONNECTIONS = 32  # one for each watch and each thread that writes
KEEPALIVE = {"idle": 15, "interval": 5, "count": 3}
"""A watch whose server or network died silently breaks after 30 s; without probes it would never end."""


Answered = Callable[[str, int | None, float], None]
"""Called after each request with its method, the answer's status (None: no answer) and the seconds until then."""


class Client(ApiClient):
    """The official client; it reports each request to `answered`, where one is given."""

    answered: Answered | None = None

    def call_api(self, method: str, url: str, *arguments: Any, **options: Any) -> Any:
        began, status = time.monotonic(), None
        try:
            response = super().call_api(method, url, *arguments, **options)
            status = response.status
        finally:
            if self.answered is not None:
                self.answered(method, status, time.monotonic() - began)
        return response


class UnusableConfigError(Exception):
    """There is no kubeconfig or service account, or it cannot be read."""


def load(kubeconfig: str | None = None, context: str | None = None, *, user_agent: str = "") -> Client:
    """The named kubeconfig; without a name the service account in a pod, else KUBECONFIG or ~/.kube/config."""
    try:
        settings = _settings(kubeconfig, context)
    except (config.ConfigException, OSError, *BROKEN) as error:
        sentence = f"No usable kubeconfig ({error}). Pass --kubeconfig FILE or set KUBECONFIG."
        raise UnusableConfigError(sentence) from error
    return _client(settings, user_agent)


def _settings(kubeconfig: str | None, context: str | None) -> Configuration:
    settings = Configuration()
    if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        in_cluster: Callable[..., None] = config.load_incluster_config
        in_cluster(client_configuration=settings)
    else:
        from_file: Callable[..., None] = config.load_kube_config
        from_file(config_file=kubeconfig, context=context, client_configuration=settings, persist_config=False)
    return settings


def for_url(url: str) -> Client:
    """A server that requires no credentials, such as the sandbox's."""
    settings = Configuration()
    settings.host = url.rstrip("/")
    return _client(settings)


def _client(settings: Configuration, user_agent: str = "") -> Client:
    settings.retries = False
    settings.connection_pool_maxsize = CONNECTIONS
    settings.socket_options = tcp_keepalive_socket_options(**KEEPALIVE)
    api = Client(settings)
    api.default_headers["Accept-Encoding"] = "gzip"
    if user_agent:
        api.user_agent = user_agent
    return api
