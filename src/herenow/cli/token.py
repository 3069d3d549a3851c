"""`herenow token`: prints a token signed with the configured secret, for scripts and experiments."""

import time
from collections.abc import Sequence

import click

from herenow.cli.flags import with_settings
from herenow.errors import ConfigurationError
from herenow.secret import resolve_secrets
from herenow.settings import Settings
from herenow.transport.auth import Expected, mint
from herenow.wire.inputs import SERVICE, Scope


@click.command()
@click.argument("user")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help=f"Make a service token, for the endpoints of back ends: {SERVICE} (all scopes), or one or several of "
    f"{', '.join(Scope)}. Repeat the option, or separate scopes by spaces.",
)
@click.option("--ttl", type=float, default=3600.0, show_default=True, help="Seconds until the token expires.")
@with_settings("ledger", "secret", "token_max_ttl", "jwks_url", "jwks_file", "jwt_issuer", "jwt_audience")
def token(settings: Settings, user: str, scopes: Sequence[str], ttl: float) -> None:
    """Print a token for a user."""
    scope = _claim(scopes)
    if not 0 < ttl <= settings.token_max_ttl:
        raise ConfigurationError(
            f"--ttl = {ttl:g} is not allowed: it must be greater than 0 and at most token_max_ttl, "
            f"which is {settings.token_max_ttl:g} s."
        )
    if not settings.accepts_secret:
        raise ConfigurationError(
            "Tokens are verified with public keys (JWKS), and herenow does not have the private ones: "
            "configure a secret as well to make tokens here."
        )
    if settings.secret is None and settings.ledger_path is None:
        raise ConfigurationError(
            f"ledger = {settings.ledger!r} is in memory, and a generated secret too: configure a secret to make tokens."
        )
    expected = Expected(settings.jwt_issuer, settings.jwt_audience)
    minted = mint(resolve_secrets(settings)[0], user, scope=scope, ttl=ttl, now=time.time(), expected=expected)
    click.echo(minted)


def _claim(scopes: Sequence[str]) -> str:
    """Return the claim `scope` with the words of all options; empty for a user's token. Raises `ConfigurationError` if
    there is no such scope."""
    words = [word for option in scopes for word in option.split()]
    for word in words:
        if word not in (SERVICE, *Scope):
            raise ConfigurationError(
                f"--scope = {word!r} is not allowed: it must be {SERVICE}, or one or several of {', '.join(Scope)}."
            )
    if scopes and not words:
        raise ConfigurationError("--scope is empty: leave it out to make a user's token.")
    return " ".join(dict.fromkeys(words))
