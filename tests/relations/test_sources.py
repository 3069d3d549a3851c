"""The relation source of a setting, open relations, and the signature of a request."""

import pytest
from pydantic import SecretStr

from herenow.errors import ConfigurationError
from herenow.ports import Relation, SourceHealth
from herenow.relations import OpenRelations, SourceOptions, open_relations
from herenow.relations.callback import CallbackRelations
from herenow.relations.callback.signature import signature
from herenow_testing.world.memory_ledger import MemoryLedger
from herenow_testing.world.settings import node_settings


def options(where):
    settings = node_settings(relations=where, relations_secret=SecretStr("s" * 32))
    return SourceOptions(settings, MemoryLedger(), lambda: 0, SourceHealth())


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("ledger", MemoryLedger),
        ("open", OpenRelations),
        ("https://app.example/x", CallbackRelations),
        ("http://127.0.0.1:9/x", CallbackRelations),
    ],
)
async def test_the_relations_setting_selects_database_open_relations_or_callback(where, kind):
    async with open_relations(options(where)) as source:
        assert type(source) is kind


def test_an_unknown_value_of_the_relations_setting_is_refused():
    with pytest.raises(ConfigurationError, match="carrier-pigeon"):
        open_relations(options("carrier-pigeon://loft"))


async def test_with_relations_open_all_users_are_related_and_contact_lists_are_empty():
    async with open_relations(options("open")) as source:
        assert await source.between("ana", ["bo", "cy"], 0) == [Relation(mutual_follow=True)] * 2
        assert await source.contacts("ana", 0) == []


def test_the_signature_of_a_relations_request_equals_the_result_of_openssl():
    """Computed with `printf '1800000000.{"ask":"x"}' | openssl dgst -sha256 -hmac <secret>`."""
    secret = "a secret of at least thirty-two bytes"
    assert signature(secret, 1_800_000_000, b'{"ask":"x"}') == "v1=" + OPENSSL


OPENSSL = "846ddf38a7e52d793fa03684746633a41e098dfac7cc9054311198326f6293a6"
