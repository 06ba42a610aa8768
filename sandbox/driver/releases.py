"""What a release of the driver brings."""

CUDA_VERSIONS = {510: 11060, 535: 12020, 550: 12040, 570: 12080, 580: 13000, 590: 13010, 610: 13030, 615: 13040}
"""The newest CUDA version of a driver branch, as 1000 times its major and 10 times its minor."""


def cuda_version(driver: str) -> int:
    """The newest that this driver has."""
    branch = int(driver.partition(".")[0])
    return max(cuda for first, cuda in CUDA_VERSIONS.items() if first <= max(branch, min(CUDA_VERSIONS)))
