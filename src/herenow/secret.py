"""The secrets of tokens: the configured ones, or one that is generated on first use and stored in a file.

The first signs, all verify. So a secret can be replaced without refusing a valid token: add the new one, and remove the old
one when its last token has expired.

The file is next to the ledger, because it must live exactly as long: a new ledger is a new installation, and a copied
ledger takes its secret along. With a ledger in memory the secret is not stored. With a database server the file is in the
current folder, so that read access to the database does not allow signing tokens for any user. The file does allow that,
so a file that other users of the machine may read is refused.
"""

import os
import secrets
import stat
from pathlib import Path

from herenow.errors import ConfigurationError
from herenow.settings import Settings
from herenow.settings.model import MAX_SECRETS, MIN_SECRET_BYTES, POSTGRESQL


def resolve_secrets(settings: Settings) -> tuple[str, ...]:
    """Return the secrets of tokens, first the one that signs: the configured ones, or those in the secret file, which is
    generated if missing. Without secrets (only public keys verify) it is empty. Raises `ConfigurationError` if the file is
    unusable."""
    if not settings.accepts_secret:
        return ()
    if settings.secret is not None:
        return tuple(each.get_secret_value() for each in settings.secret)
    path = secret_path(settings)
    if path is None:
        return (_new_secret(),)
    try:
        if not path.exists():
            _write(_new_secret(), path)
        return _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"The secret file {str(path)!r} cannot be used ({error.strerror}): "
            "make the folder writable, or configure a secret."
        ) from None


def secret_path(settings: Settings) -> Path | None:
    """Return the file of a generated secret: next to the ledger (herenow.db → herenow.secret), or in the current folder
    if the ledger is a database server. None for a ledger in memory, whose secret is not stored."""
    if settings.ledger.startswith(POSTGRESQL):
        return Path("herenow.secret")
    ledger = settings.ledger_path
    return None if ledger is None else ledger.with_name(ledger.stem + ".secret")


def _new_secret() -> str:
    return secrets.token_urlsafe(MIN_SECRET_BYTES)


def _read(path: Path) -> tuple[str, ...]:
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigurationError(
            f"Other users of this machine may read the secret file {str(path)!r}: run chmod 600 on it."
        )
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = tuple(line.strip() for line in lines if line.strip())
    if not found or min(len(secret.encode()) for secret in found) < MIN_SECRET_BYTES:
        raise ConfigurationError(
            f"The secret in {str(path)!r} is shorter than {MIN_SECRET_BYTES} bytes: remove the file to get a new one."
        )
    if len(found) > MAX_SECRETS:
        raise ConfigurationError(f"The file {str(path)!r} has {len(found)} secrets; at most {MAX_SECRETS} are allowed.")
    return found


def _write(secret: str, path: Path) -> None:
    """Write the secret to the file atomically, unless the file exists: of two processes that start at the same time,
    both use the secret of the first."""
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
