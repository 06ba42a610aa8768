"""Certificates and kubeconfigs of a throw-away control plane: whom they name, and that no other user reads them."""

import base64
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.rig.controlplane.certificates import Authority

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("plane") / "pki")


def shown(certificate: Path) -> str:
    command = [
        "openssl",
        "x509",
        "-in",
        str(certificate),
        "-noout",
        "-subject",
        "-ext",
        "subjectAltName,extendedKeyUsage",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_user_with_groups(authority: Authority) -> None:
    pair = authority.client("system:node:n1", ("system:nodes",))

    text = shown(pair.certificate)
    assert "O = system:nodes, CN = system:node:n1" in text.replace("O=", "O = ").replace("CN=", "CN = ")
    assert "Server" not in text


def test_a_server_with_addresses(authority: Authority) -> None:
    pair = authority.serving("kube-apiserver", ("127.0.0.1", "10.0.0.1"), ("kubernetes",))

    text = shown(pair.certificate)
    assert "IP Address:10.0.0.1" in text
    assert "DNS:kubernetes" in text


def test_keys_are_their_owners(authority: Authority) -> None:
    pair = authority.client("someone")
    for path in (pair.key, authority.ca.key, authority.service_account_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_chain_holds(authority: Authority) -> None:
    pair = authority.client("someone-else")
    context = ssl.create_default_context(cafile=str(authority.ca.certificate))
    context.load_cert_chain(pair.certificate, pair.key)


@pytest.mark.parametrize("with_token", [False, True])
def test_a_kubeconfig_holds_everything(authority: Authority, with_token: bool) -> None:
    pair = authority.client("reader")
    text = authority.kubeconfig(
        "https://127.0.0.1:1", *([] if with_token else [pair]), token="t" if with_token else None
    )
    config = yaml.safe_load(text)

    user = config["users"][0]["user"]
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert user == (
        {"token": "t"}
        if with_token
        else {
            "client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
            "client-key-data": base64.b64encode(pair.key.read_bytes()).decode(),
        }
    )
