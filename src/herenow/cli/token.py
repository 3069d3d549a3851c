"""`herenow token`: prints a token signed with the configured secret, for scripts and experiments."""

import time

import click

from herenow.cli.flags import with_settings
from herenow.errors import ConfigurationError
from herenow.secret import resolve_secret
from herenow.settings import Settings
from herenow.transport.auth import SERVICE, Expected, mint


@click.command()
@click.argument("user")
@click.option("--scope", type=click.Choice([SERVICE]), help="Make a service token, for the endpoints of back ends.")
@click.option("--ttl", type=float, default=3600.0, show_default=True, help="Seconds until the token expires.")
@with_settings("ledger", "secret", "token_max_ttl", "jwks_url", "jwks_file", "jwt_issuer", "jwt_audience")
def token(settings: Settings, user: str, scope: str | None, ttl: float) -> None:
    """Print a token for a user."""
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
    minted = mint(resolve_secret(settings), user, scope=scope, ttl=ttl, now=time.time(), expected=expected)
    click.echo(minted)
