"""Generates the Python modules of the two kubelet APIs, or checks that the committed ones are fresh.

`--write` runs protoc (grpcio-tools, a development dependency) and adds type stubs for the gRPC half, which protoc does
not write. `--check` compares: to the byte when the committed files came from the installed grpcio-tools, else by the
messages and services they describe, because each release formats its output a little differently.
"""

import argparse
import importlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

REPO = Path(__file__).resolve().parents[2]
PACKAGE = Path("kube/kubelet_api")
APIS = ("deviceplugin", "podresources")
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")
CALLABLES = {  # by (client streams, server streams)
    (False, False): "UnaryUnary",
    (False, True): "UnaryStream",
    (True, False): "StreamUnary",
    (True, True): "StreamStream",
}


def run_protoc(out: Path, *, descriptor_set: Path) -> None:
    from grpc_tools import protoc  # noqa: PLC0415 - a development dependency, needed by this command only

    outputs = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    protos = [str(PACKAGE / f"{api}.proto") for api in APIS]
    main: Callable[[list[str]], int] = protoc.main
    if main(["protoc", f"-I{REPO}", *outputs, f"--descriptor_set_out={descriptor_set}", *protos]) != 0:
        raise SystemExit("protoc failed")


def services(api: str) -> dict[str, ServiceDescriptor]:
    module = importlib.import_module(f"kube.kubelet_api.{api}_pb2")
    return dict(sorted(module.DESCRIPTOR.services_by_name.items()))


def streaming(method: MethodDescriptor) -> tuple[bool, bool]:
    proto = descriptor_pb2.MethodDescriptorProto()
    method.CopyToProto(proto)
    return proto.client_streaming, proto.server_streaming


def grpc_type_stub(api: str) -> str:
    """The types of `<api>_pb2_grpc.py`, read off the generated message module."""
    lines = [
        "from collections.abc import Iterator",
        "",
        "import grpc",
        "",
        f"from kube.kubelet_api import {api}_pb2 as pb",
    ]
    for name, service in services(api).items():
        stub = [f"class {name}Stub:", "    def __init__(self, channel: grpc.Channel) -> None: ..."]
        servicer = [f"class {name}Servicer:"]
        for method in service.methods:
            client_streams, server_streams = streaming(method)
            takes, gives = f"pb.{method.input_type.name}", f"pb.{method.output_type.name}"
            callable_type = f"{CALLABLES[client_streams, server_streams]}MultiCallable"
            stub.append(f"    {method.name}: grpc.{callable_type}[{takes}, {gives}]")
            request = f"request_iterator: Iterator[{takes}]" if client_streams else f"request: {takes}"
            answer = f"Iterator[{gives}]" if server_streams else gives
            servicer.append(f"    def {method.name}(self, {request}, context: grpc.ServicerContext) -> {answer}: ...")
        adder = f"def add_{name}Servicer_to_server(servicer: {name}Servicer, server: grpc.Server) -> None: ..."
        lines += ["", *stub, "", *servicer, "", adder]
    return "\n".join(lines) + "\n"


def write(out: Path) -> None:
    for api in APIS:
        for suffix in SUFFIXES[:3]:
            (REPO / PACKAGE / f"{api}{suffix}").write_bytes((out / PACKAGE / f"{api}{suffix}").read_bytes())
    for api in APIS:
        (REPO / PACKAGE / f"{api}_pb2_grpc.pyi").write_text(grpc_type_stub(api), encoding="utf-8")


def made_by_installed_tools() -> bool:
    version = importlib.metadata.version("grpcio-tools")
    return f"'{version}'" in (REPO / PACKAGE / f"{APIS[0]}_pb2_grpc.py").read_text(encoding="utf-8")


def without_json_names(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """What both runtime and protoc provide: only protoc fills in the JSON names."""
    pending = list(file.message_type)
    while pending:
        message = pending.pop()
        pending += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return file


def stale_files(out: Path, descriptor_set: Path) -> list[str]:
    """Names of the committed files that the `.proto` files no longer produce."""
    stale = []
    described = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set.read_bytes())
    for api, fresh in zip(APIS, described.file, strict=True):
        committed = descriptor_pb2.FileDescriptorProto()
        importlib.import_module(f"kube.kubelet_api.{api}_pb2").DESCRIPTOR.CopyToProto(committed)
        if committed != without_json_names(fresh):
            stale.append(f"{api}_pb2.py")
        if (REPO / PACKAGE / f"{api}_pb2_grpc.pyi").read_text(encoding="utf-8") != grpc_type_stub(api):
            stale.append(f"{api}_pb2_grpc.pyi")
        if made_by_installed_tools():
            names = [f"{api}{suffix}" for suffix in SUFFIXES[:3]]
            stale += [n for n in names if (REPO / PACKAGE / n).read_bytes() != (out / PACKAGE / n).read_bytes()]
    return sorted(set(stale))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kube.kubelet_api", description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="regenerate the modules")
    what.add_argument("--check", action="store_true", help="exit 1 and name the files that are not fresh")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run_protoc(out, descriptor_set=out / "described")
        if arguments.write:
            write(out)
            return 0
        stale = stale_files(out, out / "described")
    for name in stale:
        print(f"{PACKAGE / name} is not fresh: run python -m kube.kubelet_api --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
