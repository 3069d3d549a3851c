"""Keys are loaded in the background, kept while their source fails, and loaded again when one is missing."""

import asyncio
import os

import jwt
import pytest
from tests.transport.issuer import issuing, jwks, public_jwk, signed

from herenow.errors import ConfigurationError, ProtocolError
from herenow.transport.auth import Auth, BadKeys, Expected, KeysPending
from herenow.transport.auth.jwks import MAX_BYTES
from herenow.transport.auth.key_sources import LONGEST, SHORTEST, FileSource, Read, UrlSource
from herenow.transport.auth.keyring import TRIED
from herenow_testing.world.manual_clock import LoopClock

SECRET = "s" * 32
ONE, TWO = public_jwk("ES256", "one"), public_jwk("ES256", "two")


class Scripted:
    """A source with answers set by the test, on the loop's time."""

    where = "https://issuer.example/jwks"
    patience = 30.0

    def __init__(self, body):
        self.body = body
        self.reads = 0
        self.takes = 0.0

    async def read(self):
        self.reads += 1
        body = self.body
        await asyncio.sleep(self.takes)
        if isinstance(body, Exception):
            raise body
        return Read(body, 300.0)


class Door:
    def __init__(self, source, **options):
        self.clock = LoopClock()
        self.auth = Auth(options.pop("secrets", ()), self.clock, 86_400.0, source=source, **options)

    def token(self, algorithm="ES256", name="one", **claims):
        return signed(algorithm, name, now=self.clock.now() / 1000, **claims)

    async def code(self, token):
        try:
            await self.auth.checked(token)
        except ProtocolError as error:
            return error.code
        return "ok"


@pytest.fixture
async def opened():
    doors = []

    async def opened(source, **options):
        door = Door(source, **options)
        doors.append(door)
        await door.auth.start()
        return door

    yield opened
    for door in doors:
        await door.auth.stop()


moved = pytest.mark.looptime(noop_cycles=0)


@moved
async def test_a_token_with_an_unknown_key_id_reloads_the_jwks_keys_and_finds_a_new_key(opened):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    assert await door.code(door.token(name="two")) == "token_unknown_key"
    await asyncio.sleep(31)
    source.body = jwks(ONE, TWO)
    assert await door.code(door.token(name="two")) == "ok"
    assert source.reads == 3


@moved
async def test_concurrent_tokens_with_an_unknown_key_id_reload_the_jwks_keys_once(opened):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    source.body, source.takes = jwks(ONE, TWO), 1.0
    codes = await asyncio.gather(*(door.code(door.token(name="two", sub=f"u{n}")) for n in range(50)))
    assert set(codes) == {"ok"}
    assert source.reads == 2


@moved
async def test_tokens_with_unknown_key_ids_reload_the_jwks_keys_at_most_every_half_minute(opened):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    for second in range(60):
        assert await door.code(door.token(name="two", kid=f"made-up-{second}")) != "ok"
        assert await door.code(door.token()) == "ok"
        await asyncio.sleep(1)
    assert source.reads == 3


@moved
async def test_a_token_of_a_new_key_gets_a_retryable_error_while_the_jwks_keys_may_not_be_reloaded(opened):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    assert await door.code(door.token(name="two", kid="made-up")) == "token_unknown_key"
    source.body = jwks(ONE, TWO)
    assert await door.code(door.token(name="two")) == "keys_unavailable"
    await asyncio.sleep(30)
    assert await door.code(door.token(name="two")) == "ok"


@moved
async def test_jwks_keys_are_reloaded_before_they_expire_and_tokens_of_a_removed_key_are_refused(opened):
    source = Scripted(jwks(ONE, TWO))
    door = await opened(source)
    token = door.token(name="two")
    assert await door.code(token) == "ok"
    source.body = jwks(ONE)
    await asyncio.sleep(241)
    assert source.reads == 2
    assert await door.code(token) == "token_unknown_key"
    assert await door.code(door.token()) == "ok"


@moved
@pytest.mark.parametrize("trouble", [BadKeys("it is down"), b"<html>", b'{"keys":[]}', b" " * (MAX_BYTES + 1)])
async def test_the_last_good_jwks_keys_stay_in_use_while_they_cannot_be_reloaded(opened, trouble):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    source.body = trouble
    await asyncio.sleep(1_000)
    assert await door.code(door.token()) == "ok"
    assert "stay in use" in door.auth.trouble
    assert await door.code(door.token(name="two")) == "keys_unavailable"
    source.body = jwks(ONE, TWO)
    await asyncio.sleep(31)
    assert door.auth.trouble is None
    assert await door.code(door.token(name="two")) == "ok"


@moved
async def test_tokens_get_a_retryable_error_until_any_jwks_keys_are_loaded(opened):
    source = Scripted(BadKeys("it is down"))
    door = await opened(source, secrets=(SECRET,))
    assert "no token can be verified" in door.auth.trouble
    assert await door.code(door.token()) == "keys_unavailable"
    source.body = jwks(ONE)
    await asyncio.sleep(20)
    assert await door.code(door.token()) == "ok"
    assert door.auth.trouble is None


@moved
async def test_a_token_is_checked_only_with_the_key_that_its_key_id_names(opened):
    door = await opened(Scripted(jwks(ONE, TWO)))
    assert await door.code(door.token(name="one", kid="ES256-two")) == "token_bad_signature"


@moved
async def test_a_token_whose_key_id_names_a_key_for_another_algorithm_is_refused(opened):
    door = await opened(Scripted(jwks(ONE, public_jwk("EdDSA"))))
    assert await door.code(door.token("EdDSA", kid="ES256-one")) == "token_algorithm"
    assert await door.code(door.token("RS256", kid="ES256-one")) == "token_algorithm"


@moved
async def test_a_token_is_checked_with_all_keys_that_have_its_key_id(opened):
    same = [{**public_jwk(a, n), "kid": "same"} for a, n in (("ES256", "one"), ("ES256", "two"), ("EdDSA", "one"))]
    door = await opened(Scripted(jwks(*same)))
    for algorithm, name in (("ES256", "one"), ("ES256", "two"), ("EdDSA", "one")):
        assert await door.code(door.token(algorithm, name, kid="same")) == "ok"
    assert await door.code(door.token("ES256", "three", kid="same")) == "token_bad_signature"


@moved
async def test_a_token_without_a_key_id_is_checked_with_a_limited_number_of_keys_of_its_algorithm(opened):
    many = [public_jwk("ES256", f"n{number}") for number in range(TRIED + 1)]
    door = await opened(Scripted(jwks(public_jwk("EdDSA"), *many)))
    assert await door.code(door.token("ES256", f"n{TRIED - 1}", kid=None)) == "ok"
    assert await door.code(door.token("ES256", f"n{TRIED}", kid=None)) == "token_bad_signature"
    assert await door.code(door.token("EdDSA", kid=None)) == "ok"


@moved
async def test_a_token_issuer_that_gives_no_key_ids_may_rotate_its_keys(opened):
    source = Scripted(jwks({**ONE, "kid": None}))
    door = await opened(source)
    assert await door.code(door.token(kid=None)) == "ok"
    source.body = jwks({**TWO, "kid": None})
    assert await door.code(door.token(name="two", kid=None)) == "ok"
    assert await door.code(door.token(name="one", kid=None)) == "token_bad_signature"


@moved
async def test_a_verified_token_is_cached_until_it_expires(opened):
    door = await opened(Scripted(jwks(ONE)))
    token = door.token(exp=door.clock.now() / 1000 + 60)
    assert [await door.code(token) for _ in range(3)] == ["ok"] * 3
    await asyncio.sleep(60)
    assert await door.code(token) == "token_expired"


@moved
async def test_a_token_that_is_used_once_is_not_cached(opened):
    door = await opened(Scripted(jwks(ONE)))
    opening, asking = door.token(), door.token(sub="bob")
    assert (await door.auth.checked(opening, once=True)).user == "ana"
    assert not door.auth._verified
    assert await door.auth.checked(asking) is await door.auth.checked(asking, once=True)
    assert len(door.auth._verified) == 1


@moved
async def test_hs256_tokens_are_accepted_only_with_a_configured_secret(opened):
    def by_secret(door):
        return jwt.encode({"sub": "ana", "exp": door.clock.now() / 1000 + 60}, SECRET, "HS256")

    with_secret = await opened(Scripted(jwks(ONE)), secrets=(SECRET,))
    without = await opened(Scripted(jwks(ONE)))
    assert await with_secret.code(by_secret(with_secret)) == "ok"
    assert await without.code(by_secret(without)) == "token_algorithm"


@moved
@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://i", "aud": "herenow"}, "ok"),
        ({"iss": "https://i", "aud": ["other", "herenow"]}, "ok"),
        ({"iss": "https://i", "aud": "beside"}, "ok"),
        ({"aud": "herenow"}, "token_claims"),
        ({"iss": "https://j", "aud": "herenow"}, "token_claims"),
        ({"iss": "https://i"}, "token_claims"),
        ({"iss": "https://i", "aud": "other"}, "token_claims"),
        ({"iss": "https://i", "aud": []}, "token_claims"),
    ],
)
async def test_a_token_is_accepted_only_with_the_configured_issuer_and_audience(opened, claims, code):
    expected = Expected("https://i", ("herenow", "beside"))
    door = await opened(Scripted(jwks(ONE)), expected=expected)
    assert await door.code(door.token(**claims)) == code


@moved
async def test_a_token_with_an_audience_is_refused_if_none_is_configured(opened):
    door = await opened(Scripted(jwks(ONE)))
    assert await door.code(door.token(aud="somebody-else")) == "token_claims"


@moved
async def test_checking_a_token_of_an_unknown_key_while_keys_are_reloaded_raises_keys_pending(opened):
    source = Scripted(jwks(ONE))
    door = await opened(source)
    source.takes = 1.0
    with pytest.raises(KeysPending):
        door.auth.check(door.token(name="two"))


# --- From a file


async def test_a_jwks_file_is_read_again_when_it_changes(tmp_path, opened):
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(ONE))
    door = await opened(FileSource(path))
    assert await door.code(door.token()) == "ok"
    new = tmp_path / "new.json"
    new.write_bytes(jwks(TWO))
    new.replace(path)
    async with asyncio.timeout(10):
        while await door.code(door.token()) == "ok":
            await asyncio.sleep(0.05)
    assert await door.code(door.token(name="two")) == "ok"


async def test_the_last_good_keys_stay_in_use_when_the_jwks_file_becomes_invalid_or_missing(tmp_path, opened):
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks(ONE))
    door = await opened(FileSource(path))
    for spoil in (lambda: path.write_bytes(b"{"), path.unlink):
        spoil()
        seen = door.auth.trouble
        async with asyncio.timeout(10):
            while door.auth.trouble == seen:
                await asyncio.sleep(0.05)
        assert await door.code(door.token()) == "ok"
    path.write_bytes(jwks(TWO))
    async with asyncio.timeout(10):
        while door.auth.trouble is not None:
            await asyncio.sleep(0.05)
    assert await door.code(door.token(name="two")) == "ok"


@pytest.mark.parametrize("spoil", [None, b"", b"{}", b" " * (MAX_BYTES + 1)])
async def test_an_invalid_jwks_file_at_the_start_is_a_configuration_error(tmp_path, opened, spoil):
    path = tmp_path / "jwks.json"
    if spoil is not None:
        path.write_bytes(spoil)
    with pytest.raises(ConfigurationError, match=r"jwks_file = '.*jwks.json' cannot be used: it .*\."):
        await opened(FileSource(path))


async def test_a_pipe_in_place_of_the_jwks_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadKeys, match="not a file"):
        await FileSource(tmp_path / "pipe").read()


# --- From a URL


async def test_a_jwks_document_is_fetched_from_a_url():
    async with issuing() as issuer:
        read = await UrlSource(issuer.url).read()
    assert (read.raw, read.fresh_for) == (issuer.body, LONGEST)


@pytest.mark.parametrize(
    ("said", "fresh_for"),
    [
        ("max-age=120", 120),
        ("public, max-age=120, must-revalidate", 120),
        ("max-age=5", SHORTEST),
        ("max-age=86400", LONGEST),
        ("s-maxage=60", LONGEST),
        ("max-age=soon", LONGEST),
        ("no-store", LONGEST),
    ],
)
async def test_jwks_keys_are_cached_for_the_max_age_of_the_issuer_within_bounds(said, fresh_for):
    async with issuing() as issuer:
        issuer.headers = {"cache-control": said}
        assert (await UrlSource(issuer.url).read()).fresh_for == fresh_for


async def test_a_redirect_of_the_jwks_url_is_not_followed():
    async with issuing() as issuer, issuing() as elsewhere:
        issuer.status, issuer.headers = "302 Found", {"location": elsewhere.url}
        with pytest.raises(BadKeys, match="redirects"):
            await UrlSource(issuer.url).read()
        assert elsewhere.asked == 0


async def test_a_too_large_jwks_document_is_refused():
    async with issuing() as issuer:
        issuer.body = b" " * 10_000_000
        with pytest.raises(BadKeys, match="larger than"):
            await UrlSource(issuer.url).read()


async def test_a_compressed_jwks_document_is_refused():
    async with issuing() as issuer:
        issuer.headers = {"content-encoding": "gzip"}
        with pytest.raises(BadKeys, match="compressed"):
            await UrlSource(issuer.url).read()


async def test_a_slow_jwks_answer_times_out():
    async with issuing() as issuer:
        issuer.delay = 60
        with pytest.raises(BadKeys, match=r"within 0\.2 s"):
            await UrlSource(issuer.url, deadline=0.2).read()


@pytest.mark.parametrize("status", ["500 Oops", "404 Not Found", "204 No Content"])
async def test_only_a_200_answer_of_the_jwks_url_is_accepted(status):
    async with issuing() as issuer:
        issuer.status = status
        with pytest.raises(BadKeys, match=f"answers with {status[:3]}"):
            await UrlSource(issuer.url).read()


async def test_the_error_about_an_unreachable_jwks_url_does_not_show_its_password():
    source = UrlSource("http://user:hunter2@127.0.0.1:1/jwks")
    with pytest.raises(BadKeys) as error:
        await source.read()
    assert "hunter2" not in str(error.value) + source.where
