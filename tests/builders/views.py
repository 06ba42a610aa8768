"""What the controller reads from raw objects, by its own parsers: a view that a test builds is one that it can meet."""

from controller.api.nodes import read_node
from controller.api.plans import PlanReading, read_plan
from controller.api.pods import read_pod
from controller.model.views import NodeView, PodView
from tests.builders.objects import Json


def pod_view(raw: Json) -> PodView:
    read = read_pod(raw)
    assert isinstance(read, PodView)
    return read


def node_view(raw: Json) -> NodeView:
    read = read_node(raw)
    assert isinstance(read, NodeView)
    return read


def plan_reading(raw: Json) -> PlanReading:
    read = read_plan(raw)
    assert isinstance(read, PlanReading)
    return read
