"""A response head is sent together with the first body part, in one write, and never later than without the patch."""

import asyncio

import pytest
from tests.transport.test_websocket_rig import Client, Server, lines, running, server

from herenow.transport.http.uvicorn_patches import CoalescingTransport

__all__ = ["running", "server"]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Tcp(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.written = []
        self.closed = False

    def write(self, data):
        self.written.append(bytes(data))

    def writelines(self, list_of_data):
        self.written.append(b"".join(list_of_data))

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


@pytest.fixture
def tcp():
    return Tcp()


def test_http_response_headers_are_sent_together_with_the_first_part_of_the_body(tcp):
    answer = CoalescingTransport(tcp)
    for data in (HEAD, b"on", b"ce", b"HTTP/1.1 is only words here"):
        answer.write(data)
    assert tcp.written == [HEAD + b"on", b"ce", b"HTTP/1.1 is only words here"]


def test_http_response_headers_are_sent_even_if_the_body_is_empty(tcp):
    answer = CoalescingTransport(tcp)
    answer.write(HEAD)
    answer.write(b"")
    assert tcp.written == [HEAD]


def test_an_http_100_continue_response_is_sent_at_once(tcp):
    answer = CoalescingTransport(tcp)
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert tcp.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    answer.write(HEAD)
    answer.write(b"body")
    assert tcp.written[1:] == [HEAD + b"body"]


@pytest.mark.parametrize("written", [[], [HEAD], [HEAD, b"bo"]])
def test_closing_an_http_connection_sends_everything_written_so_far(tcp, written):
    answer = CoalescingTransport(tcp)
    for data in written:
        answer.write(data)
    answer.close()
    assert b"".join(tcp.written) == b"".join(written)
    assert answer.is_closing()


def test_a_short_http_response_is_sent_as_one_tcp_segment(server: Server):
    with Client(server.port) as client:
        client.send(lines("GET /whole HTTP/1.1", "Host: here"))
        assert client.tcp.recv(65536).endswith(b"\r\n\r\n/whole")


def test_an_http_connection_stays_usable_after_a_head_request(server: Server):
    with Client(server.port) as client:
        client.send(lines("HEAD /nothing HTTP/1.1", "Host: here"))
        assert "content-length: 8" in client.read_head()
        client.send(lines("GET /next HTTP/1.1", "Host: here"))
        assert client.read_answer()[1] == "/next"


def test_an_http_response_to_a_client_that_has_gone_is_dropped(tcp):
    answer = CoalescingTransport(tcp)
    tcp.close()
    for data in (HEAD, b"body"):
        answer.write(data)
    answer.close()
    assert tcp.written == []
