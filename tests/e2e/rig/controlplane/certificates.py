"""Keys and certificates of one throw-away control plane, made by the openssl command.

Takes a folder; writes PEM files into it, readable by their owner only, and kubeconfigs for any user and groups.
Elliptic keys, for they are made in milliseconds. Everything ends with the folder; it is good for ten days.
"""

import base64
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

DAYS = "10"
OPENSSL_SECONDS = 30.0
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own, in `folder`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self.ca = Pair(folder / "ca.crt", folder / "ca.key")
        self.service_account_key = folder / "service-account.key"
        subject = ("-subj", "/CN=gpuplan-sandbox", "-addext", "basicConstraints=critical,CA:TRUE")
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._openssl("req", "-x509", *CURVE, *subject, *usage, "-days", DAYS, *_out(self.ca))
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(self.service_account_key))

    def serving(self, name: str, addresses: Sequence[str] = ("127.0.0.1",), hosts: Sequence[str] = ()) -> Pair:
        """A server's certificate (also good as a client's: etcd dials itself)."""
        names = [f"IP:{address}" for address in addresses] + [f"DNS:{host}" for host in ("localhost", *hosts)]
        extension = f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n"
        return self._issue(name, f"/CN={name}", extension)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A user's certificate: the common name is the user, organizations are the groups."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        return self._issue(_file_name(user), subject, "extendedKeyUsage=clientAuth\n")

    def kubeconfig(self, server: str, user: Pair | None = None, *, token: str | None = None) -> str:
        """Everything inline, so that the file can be moved; either a certificate or a token."""
        who = {"token": token} if token else {}
        if user:
            who = {
                "client-certificate-data": _base64(user.certificate.read_bytes()),
                "client-key-data": _base64(user.key.read_bytes()),
            }
        cluster = {"server": server, "certificate-authority-data": _base64(self.ca.certificate.read_bytes())}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "gpuplan-sandbox", "cluster": cluster}],
                "users": [{"name": "user", "user": who}],
                "contexts": [{"name": "sandbox", "context": {"cluster": "gpuplan-sandbox", "user": "user"}}],
                "current-context": "sandbox",
            },
            sort_keys=False,
        )

    def _issue(self, name: str, subject: str, extension: str) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(extension)
        self._openssl("req", "-new", *CURVE, "-subj", subject, "-keyout", str(pair.key), "-out", str(request))
        signer = ("-CA", str(self.ca.certificate), "-CAkey", str(self.ca.key), "-set_serial", str(_serial()))
        self._openssl(
            *("x509", "-req", "-in", str(request), *signer, "-days", DAYS),
            *("-extfile", str(extensions), "-out", str(pair.certificate)),
        )
        return pair

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments],
            check=True,
            capture_output=True,
            timeout=OPENSSL_SECONDS,
            umask=0o077,
        )


def _serial() -> int:
    return int.from_bytes(os.urandom(8), "big") >> 1


def _out(pair: Pair) -> tuple[str, ...]:
    return ("-keyout", str(pair.key), "-out", str(pair.certificate))


def _file_name(user: str) -> str:
    return user.replace(":", "_").replace("/", "_")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
