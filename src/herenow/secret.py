"""Which secret signs tokens here? The configured one, or one that is made on first use and kept.

The kept one lies beside the ledger, because it must live exactly as long: a new ledger is a new installation, a
copied one takes its secret along. A ledger in memory ends with the process, and so does its secret. For one in a
database server it is kept in the current folder: whoever may read the database need not be able to speak for any user.
Whoever reads the file can, so a file that others may read is refused.
"""

import os
import secrets
import stat
from pathlib import Path

from herenow.errors import ConfigurationError
from herenow.settings import Settings
from herenow.settings.model import MIN_SECRET_BYTES, POSTGRESQL


def resolve_secret(settings: Settings) -> str:
    """The secret in force; makes and keeps one if none is configured.

    Raises `ConfigurationError` when the kept one cannot be used.
    """
    if settings.secret is not None:
        return settings.secret.get_secret_value()
    path = secret_path(settings)
    if path is None:
        return _new_secret()
    try:
        if not path.exists():
            _keep(_new_secret(), path)
        return _kept(path)
    except OSError as error:
        raise ConfigurationError(
            f"The secret beside the ledger, {str(path)!r}, cannot be used ({error.strerror}): "
            "make the folder writable, or configure a secret."
        ) from None


def secret_path(settings: Settings) -> Path | None:
    """Where a generated secret is kept: herenow.db → herenow.secret. None: nowhere, the ledger is in memory."""
    if settings.ledger.startswith(POSTGRESQL):
        return Path("herenow.secret")
    ledger = settings.ledger_path
    return None if ledger is None else ledger.with_name(ledger.stem + ".secret")


def _new_secret() -> str:
    return secrets.token_urlsafe(MIN_SECRET_BYTES)


def _kept(path: Path) -> str:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigurationError(f"Others may read the secret {str(path)!r}: run chmod 600 on it.")
    secret = path.read_text(encoding="utf-8", errors="replace").strip()
    if len(secret.encode()) < MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"The secret {str(path)!r} is shorter than {MIN_SECRET_BYTES} bytes: remove the file to get a new one."
        )
    return secret


def _keep(secret: str, path: Path) -> None:
    """Write it so that nobody ever sees half of it, and of two that start at once the first wins for both."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
