"""Every response is documented: no 500, no undocumented status, no other shape.

Requests are generated from the OpenAPI document, half of them valid and half invalid, with a fixed seed.
"""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.api.test_sockets import listening
from tests.api.world import SERVICE, serving

from herenow.api.application import CONTRACT
from herenow.api.description.page import Description

EXAMPLES = 8
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = schemathesis.openapi.from_dict(json.loads(Description(CONTRACT, max_bulk=1000).document))


@schemathesis.serializer("application/x-ndjson")
def as_lines(_context, value):
    rows = value if isinstance(value, list) else [value]
    return {"data": "\n".join(json.dumps(row) for row in rows).encode()}


ENDLESS = "/api/v1/presence/stream"
"""A response without an end; `tests/transport/test_stream.py` tests it."""

OPERATIONS = {f"{o.method} {o.path}": DOCUMENT[o.path][o.method] for o in CONTRACT if o.path != ENDLESS}
WITH_BODY = {name: operation for name, operation in OPERATIONS.items() if operation.body}


@contextmanager
def in_a_thread():
    """A server with a node on its own loop; yields its address and a service token."""
    found = {}
    ready, done = threading.Event(), threading.Event()

    async def serve():
        async with serving() as world, listening(world.app) as port:
            found["url"] = f"http://127.0.0.1:{port}"
            found["token"] = world.token(SERVICE, scope="service")
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield found["url"], found["token"]
    finally:
        done.set()
        thread.join()


@pytest.fixture(scope="module")
def call():
    with in_a_thread() as (url, token), requests.Session() as session:

        def call(case):
            headers = {"authorization": f"Bearer {token}"}
            case.call_and_validate(base_url=url, session=session, headers=headers, checks=CHECKS)

        yield call


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_valid_api_requests_get_responses_that_the_openapi_document_describes(call, operation):
    every(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), call)


@pytest.mark.parametrize("operation", WITH_BODY.values(), ids=WITH_BODY)
def test_invalid_api_requests_get_responses_that_the_openapi_document_describes(call, operation):
    every(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), call)


def every(strategy, call):
    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=strategy)
    def each(case):
        call(case)

    each()
