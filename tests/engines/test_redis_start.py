"""Parsing of URLs, and servers that are refused at the start: one sentence each, without the password."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from tests.certificates import write_certificate
from tests.ports import free_port
from tests.redis_servers import ClusterGroup, RedisProcess, debian_binary, running

from herenow.engines import make_engine
from herenow.engines.redis import slot_of
from herenow.engines.redis.client import Address, Topology, parse_url
from herenow.errors import ConfigurationError, Unavailable
from herenow.ports import Write
from herenow_testing.contracts.engine import TERMS, joined, record, stored, user_of


@pytest.mark.parametrize(
    ("url", "kind", "addresses", "user", "password", "database", "master"),
    [
        ("redis://cache", Topology.SINGLE, ["cache:6379"], None, None, 0, ""),
        ("redis://cache:7000/3", Topology.SINGLE, ["cache:7000"], None, None, 3, ""),
        ("redis://:p%40ss@cache", Topology.SINGLE, ["cache:6379"], None, "p@ss", 0, ""),
        ("redis://ops:p%3Aw@[::1]:7000", Topology.SINGLE, ["[::1]:7000"], "ops", "p:w", 0, ""),
        ("rediss://cache", Topology.SINGLE_TLS, ["cache:6379"], None, None, 0, ""),
        ("redis+sentinel://a,b:7/main", Topology.SENTINEL, ["a:26379", "b:7"], None, None, 0, "main"),
        ("redis+sentinel://:pw@a:1,b:2/main?db=2", Topology.SENTINEL, ["a:1", "b:2"], None, "pw", 2, "main"),
        ("redis+cluster://a:1,b:2,c", Topology.CLUSTER, ["a:1", "b:2", "c:6379"], None, None, 0, ""),
    ],
)
def test_a_redis_url_is_parsed_into_topology_addresses_and_login(
    url, kind, addresses, user, password, database, master
):
    target = parse_url(url)
    assert (target.topology, [str(address) for address in target.addresses], target.master) == (kind, addresses, master)
    login = target.login
    assert (login.user, login.password, login.database) == (user, password, database)
    assert (login.tls is not None) == (kind is Topology.SINGLE_TLS)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://", "host:port"),
        ("redis://cache:port", "host:port"),
        ("redis://cache:70000", "host:port"),
        ("redis://cache/x", "not a database number"),
        ("redis://a,b", "redis\\+cluster://"),
        ("redis://cache?db=1", "not an option"),
        ("redis://hunter2@cache", ":password"),
        ("rediss://cache?ca=/no/such/file", "cannot be read"),
        ("redis+sentinel://a:1", "name of the master"),
        ("redis+cluster://a:1/2", "one database"),
        ("redis+cluster://a:1,", "host:port"),
    ],
)
def test_an_invalid_redis_url_is_refused_with_the_reason(url, why):
    with pytest.raises(ConfigurationError, match=why) as refused:
        make_engine(url)
    assert "hunter2" not in str(refused.value)
    assert str(refused.value).endswith(".")


def test_slot_of_gives_the_check_value_of_the_redis_cluster_specification():
    assert slot_of("123456789") == 0x31C3, "the check value of the specification"


async def refusal(url, **options):
    engine = make_engine(url, **options)
    try:
        with pytest.raises(ConfigurationError) as refused:
            await engine.open(TERMS)
    finally:
        await engine.close()
    return one_sentence(str(refused.value))


def one_sentence(said):
    """Asserts that the text names the setting and ends with one punctuation mark, whatever the server's words end with."""
    assert re.fullmatch(r"engine '.*[^.?! ][.?]", said)
    assert "hunter2" not in said
    return said


async def test_a_redis_server_that_evicts_keys_is_refused_at_the_start(valkey_server):
    with running("--maxmemory-policy", "allkeys-lru") as server:
        assert "allkeys-lru" in await refusal(server.url)


async def test_a_wrong_redis_password_is_refused_and_not_shown():
    with running("--requirepass", "right") as server:
        for url in (f"redis://127.0.0.1:{server.port}", f"redis://:hunter2@127.0.0.1:{server.port}"):
            said = await refusal(url)
            assert "AUTH" in said or "WRONGPASS" in said
            assert "hunter2" not in said
        engine = make_engine(f"redis://:right@127.0.0.1:{server.port}/5")
        await engine.open(TERMS)
        await engine.close()


async def test_an_error_that_quotes_the_redis_server_ends_with_one_punctuation_mark(valkey_server):
    with running("--requirepass", "right") as server:
        assert (await refusal(f"redis://:hunter2@{server.address}")).endswith("is disabled.")
    assert (await refusal(f"redis://:hunter2@{valkey_server.address}")).endswith("correct?")


async def test_a_redis_url_whose_database_number_does_not_exist_is_refused(valkey_server):
    assert "DB index" in await refusal(valkey_server.url + "/99")


async def test_a_redis_replica_is_refused_as_live_store(sentinel_group):
    assert "replica" in await refusal(sentinel_group.replica.url)


async def test_a_redis_url_with_the_wrong_scheme_for_cluster_or_sentinel_is_refused_and_the_right_one_named(
    valkey_server, sentinel_group, cluster_group
):
    assert "redis+cluster://" in await refusal(cluster_group.masters[0].url)
    assert "redis+sentinel://" in await refusal(sentinel_group.sentinels[0].url)
    assert "cluster support disabled" in await refusal(f"redis+cluster://{valkey_server.address}")
    assert "master named 'yours'" in await refusal(sentinel_group.url.replace("/mine", "/yours"))
    assert "refuses" in await refusal(f"redis+sentinel://{valkey_server.address}/mine")


async def test_a_redis_cluster_with_an_unassigned_slot_is_refused():
    group = ClusterGroup()
    try:
        group.start()
        lost = slot_of("herenow.0")
        for node in group.nodes:
            node.client.execute_command("CLUSTER", "DELSLOTS", lost)
        assert f"slot {lost}" in await refusal(group.url)
    finally:
        group.close()


@asynccontextmanager
async def pretender(answer):
    """A server that is not Redis, or an old one."""

    async def serve(reader, writer):
        try:
            while await reader.read(1000):
                writer.write(answer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def test_a_redis_server_that_is_too_old_is_refused():
    said = b"redis_version:6.0.16\r\nrole:master\r\n"
    async with pretender(b"$%d\r\n%s\r\n" % (len(said), said)) as url:
        assert "6.0.16" in await refusal(url)


async def test_opening_a_live_store_raises_unavailable_if_the_server_is_missing_or_not_redis():
    async with pretender(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        for place in (url, f"redis://127.0.0.1:{free_port()}", f"redis+cluster://127.0.0.1:{free_port()}"):
            engine = make_engine(place)
            with pytest.raises(Unavailable, match=r"127\.0\.0\.1") as away:
                await engine.open(TERMS)
            await engine.close()
            one_sentence(str(away.value))


async def test_the_error_about_an_unreachable_redis_server_names_the_engine_setting():
    port = free_port()
    engine = make_engine(f"redis://ana:hunter2@127.0.0.1:{port}")
    with pytest.raises(Unavailable) as away:
        await engine.open(TERMS)
    await engine.close()
    said = one_sentence(str(away.value))
    assert said.startswith(f"engine 'redis://…@127.0.0.1:{port}' cannot be used: 127.0.0.1:{port} cannot be")


async def test_redis_over_tls_with_a_private_certificate_authority_works(tmp_path):
    pem, port = tmp_path / "localhost.pem", free_port()
    write_certificate(pem)
    options = ("--tls-port", port, "--tls-auth-clients", "no", "--tls-ca-cert-file", pem)
    server = RedisProcess(*options, "--tls-cert-file", pem, "--tls-key-file", pem, binary=debian_binary())
    try:
        server.start()
        engine = make_engine(f"rediss://127.0.0.1:{port}?ca={pem}")
        await engine.open(TERMS)
        node, user = await joined(engine), user_of(engine, 0)
        await node.write(Write(user, None, record(1)))
        assert await stored(engine, user) == record(1)
        await engine.close()
        with pytest.raises(Unavailable, match="certificate"):
            await make_engine(f"rediss://127.0.0.1:{port}").open(TERMS)
    finally:
        server.close()


# Memory layout


async def test_redis_hashes_stay_in_the_compact_encoding_with_long_ids_and_records(valkey_server):
    engine = make_engine(valkey_server.url, namespace="compact", shards=1, capacity=20)
    await engine.open(TERMS)
    node = await joined(engine)
    users = ["x" * 128, "y" * 65, *(f"user-{number:06d}" for number in range(48))]
    await node.write(*[Write(user, None, record(5, b"x" * 27), wake_at=300_000 + n) for n, user in enumerate(users)])
    await node.write(Write(users[3], record(5, b"x" * 27), record(6, b"long" * 50), wake_at=7))
    [bucket] = valkey_server.client.keys("{compact.0}:b:*")
    assert valkey_server.client.object("encoding", bucket) == b"listpack"
    assert await stored(engine, users[3]) == record(6, b"long" * 50)
    await node.write(Write(users[3], record(6, b"long" * 50), record(7)), Write(users[0], record(5, b"x" * 27), None))
    assert valkey_server.client.hlen("{compact.0}:t") == 1, "what is short again, or gone, leaves no tail behind"
    await engine.close()


def test_the_ipv6_address_of_a_redis_server_is_written_in_brackets():
    assert str(Address("::1", 1)) == "[::1]:1"
