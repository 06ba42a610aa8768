# The one image of controller, node agent and device plugin: docker build -t REGISTRY/gpuplan:VERSION .
#
# Its steps are the scripts of deploy/image, which need no container. Base: Debian 12 with the Python that the tests run
# with, pinned by the digest of the multi-architecture index. `docker buildx imagetools inspect python:3.11-slim-bookworm`
# prints a newer one; change both lines below to it.
FROM python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3 AS build
WORKDIR /source
COPY requirements/image.txt requirements/
COPY deploy/image/dependencies.sh deploy/image/
RUN deploy/image/dependencies.sh /opt/gpuplan
COPY . .
RUN deploy/image/product.sh /opt/gpuplan && deploy/image/contents.sh /opt/gpuplan

FROM python:3.11.15-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3
# As Python 3.11.15's own, but for what a running program never needs: pip, which could add code to it.
RUN python3 -m pip uninstall --yes --quiet --disable-pip-version-check setuptools wheel pip
COPY --from=build /opt/gpuplan /opt/gpuplan
# The root file system is read-only: nothing writes byte code, and temporary files need a volume at /tmp.
ENV PATH=/opt/gpuplan/bin:$PATH PYTHONPATH=/opt/gpuplan/lib PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1
LABEL org.opencontainers.image.title=gpuplan org.opencontainers.image.licenses=Apache-2.0
# The controller needs no more. Agent and device plugin manage the node's GPUs as root: their pods have runAsUser: 0.
USER 65532:65532
WORKDIR /
