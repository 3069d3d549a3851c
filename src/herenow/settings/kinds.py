"""The types of settings, with unit, validation of a single value, and a description of what is allowed.

The description completes the sentence "beat_every = 'x' is not allowed: it must be …". `model` validates combinations.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class About:
    """The purpose of a setting, for `--help` and the documentation."""

    text: str


@dataclass(frozen=True, slots=True)
class Unit:
    name: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed values of a setting, in words that complete the sentence "it must be …"."""

    words: str


SENTENCE = "sentence"


def refused(sentence: str) -> PydanticCustomError:
    """Make an error for a validator to raise, with a sentence that completes "… is not allowed: ". It replaces the
    general words of `Allowed`."""
    return PydanticCustomError(SENTENCE, "{sentence}", {"sentence": sentence})


def _split(value: object) -> object:
    """Split a string at its commas into a list, because variables and flags cannot be lists. Other values are returned
    unchanged."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _lines(value: object) -> object:
    """Split a string into its lines, without empty ones and surrounding whitespace: secrets may contain commas. Other
    values are returned unchanged."""
    return [line.strip() for line in value.split("\n") if line.strip()] if isinstance(value, str) else value


def _origin(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s,?#@]+", value):
        raise ValueError("not an origin")
    return value.lower()


def _network(value: str) -> str:
    return str(ip_network(value, strict=False))


def _existing_file(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise ValueError("no such file")
    return path


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), Unit("s"), Allowed("a number of seconds greater than 0")]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False), Unit("s"), Allowed("a number of seconds, 0 or more")]
Count = Annotated[int, Field(ge=1), Allowed("a whole number, 1 or more")]
Bytes = Annotated[int, Field(ge=256), Unit("bytes"), Allowed("a whole number of bytes, 256 or more")]
Port = Annotated[int, Field(ge=0, le=65535), Allowed("a port from 1 to 65535, or 0 for any free one")]
Shards = Annotated[int, Field(ge=1, le=1024), Allowed("a whole number from 1 to 1024")]
Host = Annotated[str, Field(pattern=r"^[^\s\[\]/]+$"), Allowed("an address or a host name")]
Name = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$"),
    Allowed("1 to 32 of a-z, 0-9, _ and -, beginning with a letter or a digit"),
]
Origins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...],
    BeforeValidator(_split),
    Allowed("origins like https://app.example.org, separated by commas"),
]
Networks = Annotated[
    tuple[Annotated[str, AfterValidator(_network)], ...],
    BeforeValidator(_split),
    Allowed("addresses or networks like 10.0.0.0/8, separated by commas"),
]
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(_lines)]
Words = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_split), Allowed("names, separated by commas")
]
ExistingFile = Annotated[Path | None, AfterValidator(_existing_file), Allowed("the path of an existing file")]
