"""Every setting has one value and a known source; a wrong value stops the start with one sentence."""

import os
import re
from pathlib import Path

import pytest

from herenow.errors import ConfigurationError
from herenow.settings import Settings, load
from herenow.settings.model import about, allowed

SECRET = "correct horse battery staple, twice over"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.upper().startswith("HERENOW_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def test_the_settings_have_defaults_so_that_no_configuration_is_needed():
    settings = load()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (settings.engine, settings.ledger) == ("memory://", "sqlite:///herenow.db")
    assert settings.source_of("port") == "default"
    assert settings.warnings == ()


def test_a_setting_is_taken_from_flag_or_variable_or_variable_file_or_toml_or_default_in_this_order(
    monkeypatch, tmp_path
):
    seen = [(load().port, load().source_of("port"))]
    Path("herenow.toml").write_text("port = 1\n")
    seen.append((load().port, load().source_of("port")))
    mounted = tmp_path / "port"
    mounted.write_text(" 2\n")
    monkeypatch.setenv("HERENOW_PORT_FILE", str(mounted))
    seen.append((load().port, load().source_of("port")))
    monkeypatch.setenv("HERENOW_PORT", "3")
    seen.append((load().port, load().source_of("port")))
    flagged = load({"port": "4"})
    seen.append((flagged.port, flagged.source_of("port")))
    assert seen == [
        (8000, "default"),
        (1, "herenow.toml"),
        (2, f"HERENOW_PORT_FILE ({mounted})"),
        (3, "HERENOW_PORT"),
        (4, "--port"),
    ]


def test_a_command_line_flag_that_is_not_given_does_not_override_an_environment_variable(monkeypatch):
    monkeypatch.setenv("HERENOW_PORT", "3")
    assert load({"port": None}).port == 3


def test_another_settings_file_can_be_used_in_place_of_herenow_toml(tmp_path):
    Path("herenow.toml").write_text("port = 1")
    other = tmp_path / "other.toml"
    other.write_text("grace = 3\norigins = ['https://a.example']")
    settings = load(config=other)
    assert (settings.port, settings.grace, settings.origins) == (8000, 3.0, ("https://a.example",))
    assert settings.source_of("grace") == str(other)


def test_a_list_setting_in_an_environment_variable_is_separated_by_commas(monkeypatch):
    monkeypatch.setenv("HERENOW_ORIGINS", "https://a.example, http://localhost:3000")
    monkeypatch.setenv("HERENOW_TRUSTED_PROXIES", "10.0.0.0/8,::1")
    settings = load()
    assert settings.origins == ("https://a.example", "http://localhost:3000")
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1/128")


def test_settings_for_times_accept_fractions_of_seconds():
    settings = load({"beat_every": "0.2", "dead_after": "0.4", "grace": "0", "idle_after": "0.5"})
    assert (settings.beat_every, settings.dead_after, settings.grace) == (0.2, 0.4, 0.0)


def test_the_setting_beat_min_is_at_most_half_of_beat_every():
    assert load().beat_min == 5.0
    assert load({"beat_every": "2"}).beat_min == 1.0
    assert load({"beat_every": "2", "beat_min": "9"}).beat_min == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "x"),
        ("port", "65536"),
        ("port", "-1"),
        ("port", ""),
        ("port", True),
        ("host", ""),
        ("host", "[::1]"),
        ("engine", "nats://localhost"),
        ("engine", "redis://"),
        ("engine", "redis+sentinel:///name"),
        ("engine", "redis:localhost"),
        ("engine", "memory"),
        ("ledger", "mysql://localhost/x"),
        ("ledger", "sqlite:///"),
        ("ledger", "herenow.db"),
        ("relations", "closed"),
        ("relations", "ftp://app.example"),
        ("relations", "HTTP://app.example"),
        ("relations", "https://"),
        ("relations", "https:///path"),
        ("relations", "https://app.example:port/"),
        ("relations", "https://app.example:0/"),
        ("relations", "https://app.example/a b"),
        ("relations", "https://app.example/#there"),
        ("relations_network", "mine"),
        ("relations_ttl", "0"),
        ("workers", "129"),
        ("workers", "0"),
        ("namespace", "Two Words"),
        ("namespace", ""),
        ("capacity", "0"),
        ("shards", "0"),
        ("beat_every", "0"),
        ("beat_every", "-1"),
        ("beat_every", "nan"),
        ("beat_every", "inf"),
        ("beat_every", "30s"),
        ("grace", "-0.1"),
        ("max_frame", "1.5"),
        ("max_bulk", "0"),
        ("origins", "example.org"),
        ("origins", "https://a.example/path"),
        ("trusted_proxies", "proxy.example"),
        ("tls_cert", "/does/not/exist"),
        ("websocket", "wsproto"),
        ("log_format", "xml"),
        ("log_level", "loud"),
    ],
)
def test_the_error_about_a_wrong_setting_names_setting_value_and_allowed_values(name, value):
    with pytest.raises(ConfigurationError) as caught:
        load({name: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} = {value!r} (--{name.replace('_', '-')}) is not allowed: it must be ")
    assert allowed(Settings.model_fields[name]) in sentence
    assert "\n" not in sentence


def test_the_setting_dead_after_must_be_at_least_twice_beat_every():
    with pytest.raises(ConfigurationError, match=r"dead_after = '59' .* at least twice beat_every, which is 30 s"):
        load({"dead_after": "59"})
    with pytest.raises(ConfigurationError, match=r"dead_after = 90.0 \(default\) .* which is 60 s"):
        load({"beat_every": "60"})
    assert load({"dead_after": "60"}).dead_after == 60.0


def test_the_settings_tls_cert_and_tls_key_must_be_given_together():
    Path("cert.pem").write_text("")
    for given in ({"tls_cert": "cert.pem"}, {"tls_key": "cert.pem"}):
        with pytest.raises(ConfigurationError, match="tls_cert and tls_key must be given together"):
            load(given)
    assert load({"tls_cert": "cert.pem", "tls_key": "cert.pem"}).tls_key == Path("cert.pem")


def test_the_error_about_a_herenow_port_variable_set_by_kubernetes_explains_its_cause(monkeypatch):
    monkeypatch.setenv("HERENOW_PORT", "tcp://10.0.0.1:8000")
    with pytest.raises(ConfigurationError, match="enableServiceLinks"):
        load()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_listening_on_a_loopback_address_needs_no_configured_secret(host):
    assert load({"host": host}).secret is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "presence.example.org", "localhost.example.org"])
def test_listening_on_a_public_address_needs_a_configured_secret(host):
    with pytest.raises(ConfigurationError, match=re.escape(f"host = {host!r}") + ".*needs a configured secret"):
        load({"host": host})
    assert load({"host": host, "secret": SECRET}).host == host


def test_jwks_keys_are_accepted_instead_of_a_secret_for_a_public_address(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_text("{}")
    assert load({"host": "0.0.0.0", "jwks_url": "https://issuer.example/jwks"}).has_jwks
    assert not load({"host": "0.0.0.0", "jwks_file": str(path)}).accepts_secret
    assert load({"jwks_file": str(path), "secret": SECRET}).accepts_secret


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"jwks_url": "ftp://issuer.example"}, "an https:// address"),
        ({"jwks_url": "issuer.example/jwks"}, "an https:// address"),
        ({"jwks_url": "https://"}, "an https:// address"),
        ({"jwks_url": "http://issuer.example/jwks"}, "must come by https://"),
        ({"jwks_file": "/no/such/file"}, "existing file"),
        ({"jwks_url": "https://issuer.example/jwks", "jwks_file": __file__}, "give one of them"),
        ({"jwt_issuer": ""}, "not empty"),
    ],
)
def test_an_invalid_jwks_setting_is_refused(chosen, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load(chosen)


def test_a_jwks_url_on_loopback_needs_no_tls_and_jwt_audience_is_a_list():
    settings = load({"jwks_url": "http://127.0.0.1:9/jwks", "jwt_audience": "a, b", "jwt_issuer": "https://i"})
    assert settings.jwks_url == "http://127.0.0.1:9/jwks"
    assert settings.jwt_audience == ("a", "b")


@pytest.mark.parametrize("secret", ["", "hunter2", "x" * 31])
def test_a_too_short_secret_setting_is_refused_and_never_shown(secret):
    with pytest.raises(
        ConfigurationError, match=r"^secret \(--secret\) is not allowed: .* at least 32 bytes"
    ) as caught:
        load({"secret": secret, "host": "0.0.0.0"})
    assert not secret or secret not in str(caught.value)


def test_the_minimum_length_of_the_secret_setting_is_measured_in_bytes():
    assert load({"secret": "é" * 16}).secret is not None


def test_settings_never_show_the_secret():
    settings = load({"secret": SECRET})
    assert SECRET not in repr(settings)
    assert SECRET not in str(list(settings.rows()))


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ana:hunter2@db/presence",
        "mysql://ana:hun/ter2@db/presence",
        "mysql://ana:hunter2@x@db,db2:5432/presence?sslmode=require",
        "mysql://ana:pa ss hunter2@db/presence",
        "mysql://db/presence?user=ana&password=hunter2&sslmode=require",
        "mysql://db/presence?sslpassword=hunter2",
    ],
)
def test_no_part_of_a_password_in_the_ledger_setting_is_shown(url):
    with pytest.raises(ConfigurationError, match="ledger = 'mysql://") as caught:
        load({"ledger": url})
    assert not re.search("hun|ter2|pa ss", str(caught.value))
    good = load({"ledger": url.replace("mysql", "postgresql")})
    shown = next(row for row in good.rows() if row.name == "ledger")
    assert not re.search("hun|ter2|pa ss", shown.value)
    assert shown.value.startswith("postgresql://")


def test_a_password_in_the_engine_setting_is_not_shown():
    with pytest.raises(ConfigurationError, match=r"nats://ops:\*\*\*@cache") as caught:
        load({"engine": "nats://ops:hunter2@cache"})
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_read_from_the_file_of_herenow_secret_file_without_its_newline(monkeypatch, tmp_path):
    mounted = tmp_path / "secret"
    mounted.write_text(SECRET + "\n")
    monkeypatch.setenv("HERENOW_SECRET_FILE", str(mounted))
    assert secrets_of(load()) == [SECRET]


def test_several_secrets_are_read_one_per_line_from_a_file(monkeypatch, tmp_path):
    mounted = tmp_path / "secret"
    mounted.write_text(f"{SECRET}\r\n\n  {SECRET}, older\n", encoding="utf-8")
    monkeypatch.setenv("HERENOW_SECRET_FILE", str(mounted))
    settings = load()
    assert secrets_of(settings) == [SECRET, f"{SECRET}, older"]
    assert next(row.value for row in settings.rows() if row.name == "secret") == "(2 set)"


def test_several_secrets_are_a_list_in_the_settings_file(tmp_path):
    config = tmp_path / "some.toml"
    config.write_text(f'secret = ["{SECRET}", "{SECRET}, older"]', encoding="utf-8")
    assert secrets_of(load(config=config)) == [SECRET, f"{SECRET}, older"]


def test_a_too_short_secret_among_several_is_refused_by_its_number():
    with pytest.raises(
        ConfigurationError, match=r"each secret \(this is number 2\) must be at least 32 bytes .* has 4"
    ):
        load({"secret": f"{SECRET}\nabcd"})


def test_more_than_eight_secrets_are_refused():
    secrets = [f"{SECRET} {number}" for number in range(9)]
    assert len(secrets_of(load({"secret": "\n".join(secrets[:8])}))) == 8
    with pytest.raises(ConfigurationError, match="at most 8 secrets, and there are 9"):
        load({"secret": "\n".join(secrets)})


def test_settings_are_read_again_from_the_same_flags_variables_and_files(monkeypatch, tmp_path):
    mounted = tmp_path / "secret"
    mounted.write_text(SECRET, encoding="utf-8")
    monkeypatch.setenv("HERENOW_SECRET_FILE", str(mounted))
    settings = load({"port": 9000})
    mounted.write_text(f"{SECRET}\n{SECRET}, newer", encoding="utf-8")
    again = settings.read_again()
    assert (secrets_of(again), again.port) == ([SECRET, f"{SECRET}, newer"], 9000)
    assert secrets_of(settings) == [SECRET]
    mounted.unlink()
    with pytest.raises(ConfigurationError, match="must be a readable file"):
        again.read_again()


def secrets_of(settings):
    return [each.get_secret_value() for each in settings.secret]


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_an_unreadable_file_in_herenow_secret_file_is_a_configuration_error(monkeypatch, tmp_path, content):
    mounted = tmp_path / "secret"
    if content is not None:
        mounted.write_bytes(content)
    monkeypatch.setenv("HERENOW_SECRET_FILE", str(mounted))
    with pytest.raises(ConfigurationError, match=r"HERENOW_SECRET_FILE = .* must be a readable file"):
        load()


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("prot = 1", "herenow.toml has an unknown setting 'prot'; the nearest one is port."),
        ("[timings]\ngrace = 1", "herenow.toml has an unknown setting 'timings'"),
        ("port =", "herenow.toml is not valid TOML"),
        ("port = true", r"port = True \(herenow.toml\) is not allowed"),
    ],
)
def test_an_unknown_or_invalid_setting_in_herenow_toml_is_a_configuration_error(toml, sentence):
    Path("herenow.toml").write_text(toml)
    with pytest.raises(ConfigurationError, match=sentence):
        load()


def test_a_settings_file_given_by_config_must_exist():
    with pytest.raises(ConfigurationError, match=r"--config = 'no.toml' must be an existing file"):
        load(config=Path("no.toml"))


def test_an_unknown_herenow_environment_variable_causes_a_warning_with_the_nearest_setting(monkeypatch):
    monkeypatch.setenv("HERENOW_BEAT_EVRY", "1")
    monkeypatch.setenv("HERENOW_ZZZZZZ", "1")
    near, far = load().warnings
    assert (
        near == "The variable HERENOW_BEAT_EVRY is not a setting and is ignored; the nearest one is HERENOW_BEAT_EVERY."
    )
    assert far == "The variable HERENOW_ZZZZZZ is not a setting and is ignored."


def test_a_settings_object_built_in_code_ignores_environment_variables(monkeypatch):
    monkeypatch.setenv("HERENOW_PORT", "1")
    settings = Settings(ledger="sqlite://", beat_every=2, dead_after=6, grace=3)
    assert settings.port == 8000
    assert settings.source_of("grace") == "argument"
    assert settings.source_of("port") == "default"


@pytest.mark.parametrize(
    ("ledger", "path"),
    [
        ("sqlite:///herenow.db", Path("herenow.db")),
        ("sqlite:////var/lib/herenow.db", Path("/var/lib/herenow.db")),
        ("sqlite://", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_the_database_file_of_the_settings_is_taken_from_the_sqlite_url(ledger, path):
    assert Settings(ledger=ledger).ledger_path == path


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_has_a_description_and_allowed_values(name):
    field = Settings.model_fields[name]
    assert about(field)
    assert allowed(field)


def test_every_duration_setting_is_in_seconds():
    for row in Settings().rows():
        if Settings.model_fields[row.name].annotation is float:
            assert row.unit == "s", row.name


# --- Where relations come from


@pytest.mark.parametrize("relations", ["ledger", "open"])
def test_the_relations_settings_ledger_and_open_need_no_relations_secret(relations):
    assert load({"relations": relations}).asks_the_application is False


@pytest.mark.parametrize(
    "url",
    [
        "https://app.example/herenow",
        "https://app.example:8443/herenow?v=1",
        "http://localhost:9000/",
        "http://127.0.0.1/",
        "http://[::1]:9000/x",
    ],
)
def test_a_relations_setting_with_a_url_needs_relations_secret(url):
    with pytest.raises(ConfigurationError, match="needs relations_secret"):
        load({"relations": url})
    settings = load({"relations": url, "relations_secret": SECRET})
    assert settings.asks_the_application
    assert settings.edges_kept_here == frozenset()


@pytest.mark.parametrize("url", ["http://app.example/x", "http://10.0.0.7:9000/", "http://localhost.example/"])
def test_a_relations_url_with_plain_http_needs_the_setting_relations_network_private(url):
    given = {"relations": url, "relations_secret": SECRET}
    with pytest.raises(ConfigurationError, match="use https://, or set relations_network to private"):
        load(given)
    assert load({**given, "relations_network": "private"}).relations == url


@pytest.mark.parametrize("url", ["https://me:word@app.example/", "https://me@app.example/"])
def test_a_relations_url_with_a_password_is_refused_without_showing_it(url):
    with pytest.raises(ConfigurationError, match="without a user name or password") as caught:
        load({"relations": url, "relations_secret": SECRET})
    assert "word@" not in str(caught.value)


def test_the_setting_relations_secret_must_be_long_and_may_come_from_a_file(monkeypatch, tmp_path):
    with pytest.raises(ConfigurationError, match=r"^relations_secret .* at least 32 bytes") as caught:
        load({"relations_secret": "hunter2", "relations": "https://app.example/"})
    assert "hunter2" not in str(caught.value)
    mounted = tmp_path / "shared"
    mounted.write_text(SECRET + "\n")
    monkeypatch.setenv("HERENOW_RELATIONS_SECRET_FILE", str(mounted))
    settings = load({"relations": "https://app.example/"})
    assert settings.relations_secret is not None
    assert settings.relations_secret.get_secret_value() == SECRET
    assert SECRET not in str(list(settings.rows()))


def test_the_setting_shares_room_is_refused_together_with_a_relations_url():
    elsewhere = {"relations": "https://app.example/", "relations_secret": SECRET}
    with pytest.raises(ConfigurationError, match="an application, which decides who may see whom"):
        load({**elsewhere, "shares_room": "on"})
    assert load({**elsewhere, "shares_room": "off"}).asks_the_application
    for here in ("ledger", "open"):
        assert load({"relations": here, "shares_room": "on"}).shares_room == "on"


def test_with_relations_open_only_room_memberships_are_stored():
    assert load({"relations": "open"}).edges_kept_here == {"room"}
    assert load().edges_kept_here == {"follow", "contact", "room"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "memory:// is inside one process"),
        ({"engine": "redis://h", "ledger": "sqlite://"}, "a database in memory is inside one process"),
        ({"engine": "redis://h", "ledger": "sqlite:///:memory:"}, "a database in memory is inside one process"),
    ],
)
def test_several_workers_need_a_redis_engine_and_a_database_outside_memory(values, sentence):
    with pytest.raises(ConfigurationError, match=f"workers = '2' .* is not allowed: {sentence}"):
        load({"workers": "2", **values})
    assert load({"workers": "1", **values}).workers == 1
    assert load({"workers": "128", "engine": "redis://h"}).workers == 128
