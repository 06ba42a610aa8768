"""What kube-apiserver answered to 250 random applies, patches and replaces, the sandbox answers too."""

import gzip
import json
from pathlib import Path
from typing import Any

from kubernetes import client

from tests.apiserver import ApiServer
from tests.sandbox.apiserver.probe import Http
from tests.sandbox.apiserver.recording import Writes, play, prepare

FILE = Path(__file__).with_name("recorded-1.36.3.json.gz")


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def test_the_recording_is_the_sequence_of_its_seed() -> None:
    writes = Writes(seed=1)

    assert [step["write"] for step in recorded()["steps"]] == [writes.next() for _ in range(250)]


def test_the_sandbox_answers_the_same() -> None:
    with ApiServer() as server:
        configuration = client.Configuration()
        configuration.host = server.url
        http = Http(client.ApiClient(configuration))
        prepare(http)
        for number, step in enumerate(recorded()["steps"]):
            assert play(http, step["write"]) == step["answer"], f"step {number}: {step['write']}"
        http.close()
