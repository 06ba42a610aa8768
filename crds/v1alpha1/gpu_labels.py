"""Reads the labels that GPU feature discovery writes, of which some tell what others mean.

With its MIG strategy `single`, the labels of a node whose GPUs are in MIG mode describe MIG devices: product, count and
memory alike. Pure.
"""

from collections.abc import Mapping

from crds.v1alpha1.names import LABEL_MEMORY, LABEL_PRODUCT

_OF_MIG_DEVICES = "-MIG-"
"""Between the product and its profile, or INVALID where the GPUs of the node differ."""
_SAME_MEMORY = 0.9
"""Of the catalogue's: drivers and ECC take less than a tenth."""


def counts_mig_devices(labels: Mapping[str, str]) -> bool:
    """Whether the labels are about MIG devices: how many GPUs there are is not known then."""
    return _OF_MIG_DEVICES in labels.get(LABEL_PRODUCT, "")


def is_smaller_card(labels: Mapping[str, str], memory_mib: int) -> bool:
    """Whether the labels have much less memory than the model of their product: another card, with other profiles."""
    text = labels.get(LABEL_MEMORY, "")
    return text.isascii() and text.isdigit() and 0 < int(text) < _SAME_MEMORY * memory_mib
