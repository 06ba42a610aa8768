"""The CustomResourceDefinition of GPUPartitionPlan as it ships; `deploy.generate.crd` makes it from the types."""

from pathlib import Path

from crds.v1alpha1 import names

FILE_NAME = f"{names.GROUP}_{names.PLURAL}.yaml"


def text() -> str:
    """Ready for `kubectl apply`."""
    return Path(__file__).with_name(FILE_NAME).read_text()
