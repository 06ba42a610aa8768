"""Values that the chart refuses, each with the name that the message must have. Used with and without helm."""

from typing import Any

import yaml

# What is wrong, as a person would write it; where it is wrong, as helm and jsonschema print the place.
WRONG: dict[str, tuple[str, str]] = {
    "an unknown key": ("controlplane: {replicas: 2}", "controlplane"),
    "an unknown key of a group": ("image: {registry: example.com}", "registry"),
    "a tag with a slash": ("image: {tag: a/b}", "/image/tag"),
    "a digest without its algorithm": (f"image: {{digest: {'a' * 64}}}", "/image/digest"),
    "an unknown pull policy": ("image: {pullPolicy: Sometimes}", "/image/pullPolicy"),
    "a text for a number": ("controller: {replicas: two}", "/controller/replicas"),
    "too few replicas": ("controller: {replicas: -1}", "/controller/replicas"),
    "a window of no length": ("batchWindowTimeoutSeconds: 0", "/batchWindowTimeoutSeconds"),
    "a window with a unit": ("batchWindowIdleSeconds: 10s", "/batchWindowIdleSeconds"),
    "a setting that the program does not have": ("controller: {settings: {ageingSecond: 60}}", "ageingSecond"),
    "a setting that the chart sets": ("controller: {settings: {metricsPort: 9999}}", "metricsPort"),
    "a setting out of range": ("controller: {settings: {improveSteps: -1}}", "/controller/settings/improveSteps"),
    "a setting of another type": ("agent: {settings: {writeAllocatable: soon}}", "/agent/settings/writeAllocatable"),
    "a log level in capitals": ("devicePlugin: {logLevel: INFO}", "/devicePlugin/logLevel"),
    "a privileged port": ("agent: {metricsPort: 80}", "/agent/metricsPort"),
    "a relative directory": ("nodes: {kubeletDir: var/lib/kubelet}", "/nodes/kubeletDir"),
    "a directory of the MPS daemons that is too long": (f"nodes: {{mpsDir: /run/{'m' * 60}}}", "/nodes/mpsDir"),
    "a node label without values": ("nodes: {labels: [{key: gpu}]}", "/nodes/labels/0"),
    "no node label": ("nodes: {labels: []}", "/nodes/labels"),
    "an unknown taint effect": ("nodes: {tolerations: [{effect: Never}]}", "/nodes/tolerations/0/effect"),
    "an amount with an unknown unit": (
        "agent: {resources: {limits: {memory: 1GiB}}}",
        "/agent/resources/limits/memory",
    ),
    "an unknown kind of amount": ("controller: {resources: {limit: {memory: 1Gi}}}", "limit"),
    "a share above all": ("agent: {maxUnavailable: 200%}", "/agent/maxUnavailable"),
    "a user by name": ("mps: {userID: daemon}", "/mps/userID"),
    "a misspelt user": ("mps: {userId: 1000}", "userId"),
    "a geometry without models": ("knownMigGeometries: [{allowedGeometries: [{1g.5gb: 7}]}]", "/knownMigGeometries/0"),
    "a geometry of no instance": (
        "knownMigGeometries: [{models: [A30], allowedGeometries: [{1g.6gb: 0}]}]",
        "/knownMigGeometries/0/allowedGeometries/0/1g.6gb",
    ),
    "a scheduler's file for its ConfigMap": ("scheduler: {configFile: /etc/s.yaml}", "configFile"),
    "a port as a name": ("networkPolicy: {apiServerPorts: [https]}", "/networkPolicy/apiServerPorts/0"),
    "an interval without a unit": (
        "monitoring: {serviceMonitor: {interval: '30'}}",
        "/monitoring/serviceMonitor/interval",
    ),
    "a base of runbooks that is no address": (
        "monitoring: {prometheusRule: {runbookBaseUrl: docs/runbooks}}",
        "/monitoring/prometheusRule/runbookBaseUrl",
    ),
    "a pull secret as a text": ("imagePullSecrets: [registry]", "/imagePullSecrets/0"),
    "a label that is no text": ("commonLabels: {team: 5}", "/commonLabels/team"),
    "a ConfigMap's name that no object can have": (
        "devicePlugin: {config: {name: Bad_Name}}",
        "/devicePlugin/config/name",
    ),
    "a scheduler's ConfigMap by such a name": ("scheduler: {config: {name: a/b}}", "/scheduler/config/name"),
    "an account name with capitals": ("agent: {serviceAccount: {name: Agent}}", "/agent/serviceAccount/name"),
}
# What a schema cannot express, and helm's message.
CONTRADICTIONS: dict[str, tuple[str, str]] = {
    "no image": (
        "image: {repository: ''}",
        "image.repository is empty: only the chart of a release names an image",
    ),
    "windows the wrong way round": (
        "batchWindowIdleSeconds: 90",
        "batchWindowIdleSeconds (90) must not be greater than",
    ),
    "agents that are silent between two heartbeats": (
        "controller: {settings: {agentSilentSeconds: 1}}",
        "controller.settings.agentSilentSeconds (1) must be at least three times agent.settings.heartbeatSeconds (10)",
    ),
    "two replicas that both write": (
        "controller: {settings: {leaderElection: {enabled: false}}}",
        "controller.settings.leaderElection.enabled is false",
    ),
}


def values(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)
    return found
