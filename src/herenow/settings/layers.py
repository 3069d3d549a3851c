"""Reads the settings from their sources, in order of precedence.

Flags, then `HERENOW_*` variables, then `HERENOW_*_FILE` (a file's content, for mounted secrets), then `herenow.toml`, then
the defaults. The source of each value is kept, so that an operator can find out which file set it. An error is one sentence
with the setting, its value (never a secret's), its source and the allowed values.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from herenow.errors import ConfigurationError
from herenow.settings.kinds import SENTENCE
from herenow.settings.model import Settings, allowed, is_secret, without_password

PREFIX = "HERENOW_"
DEFAULT_FILE = Path("herenow.toml")


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one source, and the source's name for each of them."""

    values: Mapping[str, Any]
    places: Mapping[str, str]


def load(flags: Mapping[str, object] | None = None, config: Path | None = None) -> Settings:
    """Read the settings from flags, environment, files and defaults, and validate them. `config` replaces
    `./herenow.toml`. Raises `ConfigurationError` with one sentence."""
    layers = [_flags(flags or {}), _variables(), _files(), _toml(config)]
    values, places = _merged(layers)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error, values, places)) from None
    return settings.found_in(places, tuple(_unknown_variables()), partial(load, flags, config))


def _merged(layers: list[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for layer in reversed(layers):
        values.update(layer.values)
        places.update(layer.places)
    return values, places


def _flags(flags: Mapping[str, object]) -> Layer:
    given = {name: value for name, value in flags.items() if value is not None}
    return Layer(given, {name: "--" + name.replace("_", "-") for name in given})


def _variables() -> Layer:
    given = {name.upper(): value for name, value in os.environ.items()}  # herenow_port is accepted as well
    values = {name: given[variable(name)] for name in Settings.model_fields if variable(name) in given}
    return Layer(values, {name: variable(name) for name in values})


def _files() -> Layer:
    values: dict[str, str] = {}
    places: dict[str, str] = {}
    for name in Settings.model_fields:
        path = os.environ.get(variable(name) + "_FILE")
        if path is not None:
            values[name] = _content(variable(name) + "_FILE", path)
            places[name] = f"{variable(name)}_FILE ({path})"
    return Layer(values, places)


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{name} = {path!r} must be a readable file: {reason}.") from None


def _toml(config: Path | None) -> Layer:
    path = config or DEFAULT_FILE
    if not path.is_file():
        if config is None:
            return Layer({}, {})
        raise ConfigurationError(f"--config = {str(path)!r} must be an existing file.")
    values = _parsed(path)
    for key in values:
        if key not in Settings.model_fields:
            raise ConfigurationError(f"{path} has an unknown setting {key!r}{_suggestion(key)}.")
    return Layer(values, dict.fromkeys(values, str(path)))


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _sentence(error: ValidationError, values: Mapping[str, Any], places: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    field = Settings.model_fields.get(name)
    if field is None:
        return f"There is no setting {name!r}{_suggestion(name)}."
    value = values.get(name, field.default)
    shown = "" if is_secret(field) else f" = {without_password(repr(value))}"
    reason = first["msg"] if first["type"] == SENTENCE else f"it must be {allowed(field)}"
    return f"{name}{shown} ({places.get(name, 'default')}) is not allowed: {reason}.{_hint(name, value)}"


def _hint(name: str, value: object) -> str:
    if name == "port" and str(value).startswith("tcp://"):
        return (
            " Kubernetes sets HERENOW_PORT for a Service named herenow: "
            "put enableServiceLinks: false into the pod, or name the Service otherwise."
        )
    return ""


def _unknown_variables() -> Iterator[str]:
    known = {variable(name) for name in Settings.model_fields}
    known |= {name + "_FILE" for name in known}
    for name in sorted(os.environ):
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            setting = name.upper().removeprefix(PREFIX).removesuffix("_FILE").lower()
            yield f"The variable {name} is not a setting and is ignored{_suggestion(setting, as_variable=True)}."


def _suggestion(name: str, *, as_variable: bool = False) -> str:
    close = get_close_matches(name, Settings.model_fields, n=1, cutoff=0.5)
    if not close:
        return ""
    return f"; the nearest one is {variable(close[0]) if as_variable else close[0]}"


def variable(name: str) -> str:
    return PREFIX + name.upper()
