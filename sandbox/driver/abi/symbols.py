"""The whole table of exported C functions: importing the modules that declare them is what fills it."""

from sandbox.driver.abi import compute, devices, links, mig, others, pci, registry, versions

DECLARED_IN = (compute, devices, links, mig, others, pci, versions)
EXPORTS = registry.EXPORTS
