"""Ports that are kept for a server of another process."""

import socket
from contextlib import closing
from http.server import HTTPServer, SimpleHTTPRequestHandler

import pytest

from sandbox.ports import LOOPBACK, HeldPort


def test_a_server_that_asks_for_it_gets_it_and_gets_it_again() -> None:
    with closing(HeldPort()) as held:
        for _ in range(2):
            with HTTPServer((LOOPBACK, held.number), SimpleHTTPRequestHandler) as server:
                assert server.server_address[1] == held.number
                with closing(socket.create_connection((LOOPBACK, held.number))):
                    pass


def test_who_does_not_ask_to_share_it_does_not_get_it() -> None:
    # As a client is: without SO_REUSEADDR.
    with closing(HeldPort()) as held, socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, held.number))


def test_it_is_free_again_afterwards() -> None:
    held = HeldPort()
    number = held.number
    held.close()
    held.close()

    with socket.socket() as other:
        other.bind((LOOPBACK, number))
