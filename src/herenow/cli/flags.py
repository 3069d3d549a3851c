"""Command-line flags generated from the settings.

Flags are passed on as text and validated by the settings, so a wrong flag and a wrong variable give the same error.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from herenow.settings import Settings, load
from herenow.settings.layers import DEFAULT_FILE, variable
from herenow.settings.model import about, unit_of


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator of a command: add flags for the named settings (default: all), and pass it the loaded `settings`."""
    chosen = names or tuple(Settings.model_fields)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_loaded(*, config: Path | None, **arguments: object) -> None:
            flags = {name: arguments.pop(name) for name in chosen}
            settings = load(flags, config)
            for warning in settings.warnings:
                click.echo(f"Warning: {warning}", err=True)
            command(settings=settings, **arguments)

        return functools.reduce(lambda wrapped, name: _flag(name)(wrapped), reversed(chosen), _file(with_loaded))

    return decorate


def _file(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        help=f"Settings file instead of {DEFAULT_FILE} in the current folder.",
    )(command)


def _flag(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    field = Settings.model_fields[name]
    unit = f" [{unit_of(field)}]" if unit_of(field) else ""
    default = f" Default: {field.default}." if field.default not in (None, ()) else ""
    return click.option(
        "--" + name.replace("_", "-"), name, metavar="VALUE", help=f"{about(field)}{unit}; {variable(name)}.{default}"
    )
