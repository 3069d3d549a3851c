"""The OpenAPI document is complete and correct; the page loads nothing from other servers."""

import json
import re
from html.parser import HTMLParser

import pytest
from tests.api.world import serving

from herenow.api.application import CONTRACT, Resource
from herenow.api.description.openapi import document
from herenow.api.description.operations import codes_of
from herenow.api.description.page import Description
from herenow.wire.codes import CODES, Where
from herenow.wire.inputs import Scope


@pytest.fixture(scope="module")
def described():
    return json.loads(Description(CONTRACT, max_bulk=1000).document)


async def test_the_routes_of_the_server_and_the_openapi_document_agree():
    async with serving(start=False) as world:
        routes = {
            (route.path, method)
            for route in world.app.routes
            if isinstance(route.endpoint, Resource)  # the others serve static files
            for method in route.endpoint.operations
            if method != "HEAD"
        }
        described = (await world.get("/openapi.json")).json()
        assert routes == {(path, method.upper()) for path, methods in described["paths"].items() for method in methods}


def test_every_error_code_of_an_api_operation_is_in_the_public_table_as_a_rest_code():
    for operation in CONTRACT:
        for code in codes_of(operation):
            assert Where.REST in CODES[code].where, code


def test_every_rest_error_code_is_used_by_an_api_operation():
    later = {"not_a_member"}
    used = {code for operation in CONTRACT for code in codes_of(operation)}
    used |= {"not_found", "method_not_allowed"}
    assert {code.name for code in CODES.values() if Where.REST in code.where} - later == used


def test_the_openapi_document_names_the_scope_of_every_endpoint(described):
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            scope = operation["x-herenow-scope"]
            if operation["security"]:
                assert scope in set(Scope), f"{method} {path} has no scope"
                assert f"`{scope}`" in operation["description"]
            else:
                assert scope == "none"


def test_the_operation_ids_in_the_openapi_document_are_unique(described):
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def test_every_reference_in_the_openapi_document_resolves(described):
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)):
        assert name in described["components"]["schemas"]


def test_the_openapi_document_shows_the_configured_limit_of_ids_per_request():
    assert "7 ids" in document(CONTRACT, max_bulk=7)["info"]["description"]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.tags = [], set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action"):
                self.links.append(value)
            if name == "id":
                self.ids.add(value)


async def test_the_api_documentation_page_loads_no_other_files_and_has_no_broken_links():
    async with serving(start=False) as world:
        answer = await world.get("/docs")
    page = Page(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert "url(" not in answer.text
    assert "//" not in re.sub(r"<(pre|code)>.*?</\1>", "", answer.text, flags=re.DOTALL)
    for link in page.links:
        assert link == "/openapi.json" or link.removeprefix("#") in page.ids


async def test_the_api_documentation_page_explains_every_rest_error_code_and_shows_every_endpoint():
    async with serving(start=False) as world:
        text = (await world.get("/docs")).text
    page = Page(text)
    for code in CODES.values():
        assert (code.name in page.ids) == (Where.REST in code.where)
    for operation in CONTRACT:
        assert f"<code>{operation.path}</code>" in text
