"""Installation of peers: in their own folder, outside the product's requirements and its interpreter.

Python packages by hashed pins, nginx with its module and Prosody from the distribution's packages (unpacked, not
installed), Go modules by go.sum. The machine decides which registry is used. `BENCH_PEERS` names another folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.peer import NotInstalledError
from bench.server import ROOT

HERE = Path(__file__).parent
PINS = HERE / "requirements.txt"
MODULE = HERE / "centrifugo_module"
NGINX = ("nginx", "nginx-common", "libnginx-mod-nchan")
PROSODY = (*("prosody", "lua5.4", "lua-bitop", "lua-expat", "lua-filesystem", "lua-sec", "lua-socket"), "libicu72")
PATIENCE = 900.0


def folder() -> Path:
    return Path(os.environ.get("BENCH_PEERS", ROOT / ".peers"))


def interpreter() -> str:
    """The base interpreter of herenow's environment: it has pip, and none of herenow's packages."""
    return getattr(sys, "_base_executable", sys.executable)


def python_environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HERENOW_")}
    return inherited | {"PYTHONPATH": f"{folder() / 'python'}:{HERE / 'apps'}"} | more


def python_missing() -> str | None:
    return None if _stamped("python", PINS) else f"the packages of {PINS.name} are not in {folder()}"


def install_python() -> None:
    if python_missing():
        parts = _fresh("python")
        _run(
            [
                *(interpreter(), "-m", "pip", "install", "--quiet", "--target", str(parts)),
                *("--only-binary", ":all:", "--require-hashes", "--requirement", str(PINS)),
            ],
            PIP_ROOT_USER_ACTION="ignore",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        )
        _keep("python", parts, PINS)


def python_version(package: str) -> str:
    found = [
        line.split("==")[1].split()[0] for line in PINS.read_text().splitlines() if line.startswith(package + "==")
    ]
    return f"{package} {found[0]}"


def nginx() -> Path:
    return folder() / "nginx" / "usr/sbin/nginx"


def nchan() -> Path:
    return folder() / "nginx" / "usr/lib/nginx/modules/ngx_nchan_module.so"


def nginx_missing() -> str | None:
    if nginx().exists() and nchan().exists():
        return None
    return f"nginx and its module Nchan are not in {folder()}"


def install_nginx() -> str:
    """Returns the version. Debian has one per release, so it is reported and not pinned."""
    if nginx_missing():
        _unpack("nginx", NGINX)
    return "Nchan " + _debian_version("nginx", "libnginx-mod-nchan")


def prosody() -> Path:
    """The folder that is used as the root of its file system."""
    return folder() / "prosody"


def prosody_missing() -> str | None:
    return None if prosody().exists() else f"Prosody is not in {folder()}"


def install_prosody() -> str:
    if prosody_missing():
        _unpack("prosody", PROSODY)
    return "Prosody " + _debian_version("prosody", "prosody")


def centrifugo() -> Path:
    return folder() / "centrifugo" / "centrifugo"


def centrifugo_missing() -> str | None:
    if _stamped("centrifugo", MODULE / "go.sum"):
        return None
    return f"Centrifugo has not been built into {folder()}"


def install_centrifugo() -> str:
    required = next(line for line in (MODULE / "go.mod").read_text().splitlines() if line.startswith("require"))
    _, module, version = required.split()
    if centrifugo_missing():
        if shutil.which("go") is None:
            raise NotInstalledError("Centrifugo is built from its Go module, and there is no Go here")
        parts = _fresh("centrifugo")
        for name in ("go.mod", "go.sum"):
            shutil.copy(MODULE / name, parts)
        _run(
            ["go", "build", "-mod=mod", "-o", "centrifugo", module],
            within=parts,
            GOTOOLCHAIN="local",
            GOFLAGS="-buildvcs=false",
        )
        _keep("centrifugo", parts, MODULE / "go.sum")
    return f"Centrifugo {version}"


def _run(command: list[str], within: Path | None = None, **environment: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=within, env=dict(os.environ) | environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired as late:
        raise NotInstalledError(f"{' '.join(command[:4])} took more than {PATIENCE:g} s") from late
    if done.returncode:
        raise NotInstalledError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-500:]}")


def _unpack(name: str, packages: Sequence[str]) -> None:
    """Unpacks Debian packages without running their scripts: it needs no root and changes nothing outside the folder."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotInstalledError(f"{name} is taken from Debian's packages, and there is no apt-get here")
    parts = _fresh(name)
    _run(["apt-get", "download", "-qq", *packages], within=parts)
    for package in sorted(parts.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(parts)])
    shutil.rmtree(folder() / name, ignore_errors=True)
    parts.rename(folder() / name)


def _debian_version(name: str, package: str) -> str:
    [found] = (folder() / name).glob(f"{package}_*.deb")
    return found.name.split("_")[1].replace("%3a", ":")


def _fresh(name: str) -> Path:
    parts = folder() / f"{name}.part"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    return parts


def _keep(name: str, parts: Path, pins: Path) -> None:
    """Renames a complete installation to its final name, so that an incomplete one is never used."""
    (parts / "bench.stamp").write_text(_checksum(pins))
    shutil.rmtree(folder() / name, ignore_errors=True)
    parts.rename(folder() / name)


def _stamped(name: str, pins: Path) -> bool:
    stamp = folder() / name / "bench.stamp"
    return stamp.exists() and stamp.read_text() == _checksum(pins)


def _checksum(pins: Path) -> str:
    return hashlib.sha256(pins.read_bytes()).hexdigest()
