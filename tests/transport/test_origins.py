"""The origin check: a malformed origin is no page of this server."""

import pytest

from herenow.transport.auth import is_allowed


@pytest.mark.parametrize(
    ("origin", "host"), [("http://[", "["), ("http://", ""), ("http://a:b", "a:b"), ("http://a:99999", "a:99999")]
)
def test_a_malformed_origin_that_equals_a_malformed_host_is_refused(origin, host):
    assert not is_allowed(origin, host=host, secure=False, origins=frozenset())


@pytest.mark.parametrize(
    ("origin", "host"), [("http://here", "here:80"), ("http://[::1]:8080", "[::1]:8080"), ("http://HERE", "here")]
)
def test_an_origin_with_the_scheme_host_and_port_of_the_server_is_allowed(origin, host):
    assert is_allowed(origin, host=host, secure=False, origins=frozenset())
