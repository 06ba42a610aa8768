"""Conformance: discovery, documents about the API, health."""

import pytest

from tests.sandbox.apiserver.probe import CARDPLANS, Http, Kubectl, Plans

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery(http: Http, path: str) -> None:
    answer = http("GET", path, accept=AGGREGATED)

    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert answer.headers["Content-Type"].startswith("application/json;g=apidiscovery.k8s.io;v=v2")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(http: Http, path: str) -> None:
    assert (http("GET", path).status, http("GET", path).body) == (200, "ok")


def test_kubectl_lists_resources_and_versions(kubectl: Kubectl) -> None:
    resources = kubectl("api-resources", "--no-headers")

    assert all(name in resources for name in ("pods", "leases", "nodes", "customresourcedefinitions"))
    assert "Server Version: v1." in kubectl("version")


def test_a_definition_adds_its_names(kubectl: Kubectl, plans: Plans) -> None:
    plans.create("n1")

    assert "cardplan.conformance.example.com/n1" in kubectl("get", "cpl", "-o", "name")
    assert "cardplan.conformance.example.com/n1" in kubectl("get", "cards", "-o", "name")


def test_explain_reads_the_definition(kubectl: Kubectl, plans: Plans) -> None:
    text = kubectl("explain", "cardplans.spec.cards.cut", "--recursive")

    assert "Cut the card into slices." in text
    assert "slices\t<[]Object> -required-" in text
    assert "profile\t<string> -required-" in text
    assert "ENUM:\n    Auto\n    Manual" in kubectl("explain", "cpl.spec.mode")


def test_paths_that_do_not_exist_are_404(http: Http) -> None:
    for path in ("/apis/apps/v9", "/api/v1/unknowns", f"{CARDPLANS}/n1/scale"):
        answer = http("GET", path)
        assert (answer.status, answer.body.get("reason")) == (404, "NotFound"), path
    for path in ("/apis/nothing.example.com/v1", "/nothing"):
        assert http("GET", path).status == 404
