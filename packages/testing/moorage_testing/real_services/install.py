"""Bring the real services into virtual environments of their own: once for a machine and a set of pinned versions.

They lie outside the checkout, in `$XDG_CACHE_HOME/moorage` (`~/.cache/moorage`), under a name that says what is in them: any
number of checkouts and runs share them, one of them installs, and the others wait for it.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
REQUIREMENTS = REPOSITORY / "tests" / "real" / "requirements-real.txt"
CONSTRAINTS = REPOSITORY / "tests" / "real" / "constraints-real.txt"
INSTALL_DEADLINE_S = 900


def cache() -> Path:
    """Where this machine keeps what is made once for all checkouts."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moorage"


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """One process of this machine at a time, whichever checkout it runs in; a killed one releases it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def install(name: str = "peers", requirements: Path = REQUIREMENTS, constraints: Path = CONSTRAINTS) -> Path:
    """The interpreter of an environment that holds exactly the pinned versions; made when this machine has none.

    Raises RuntimeError with the installer's last output.
    """
    lines = [line for file in (requirements, constraints) for line in file.read_text().splitlines() if line[:1] != "#"]
    pinned = hashlib.sha256("\n".join([sys.version, *lines]).encode()).hexdigest()
    venv = cache() / f"{name}-{pinned[:16]}"
    mark, python = venv / "installed", venv / "bin" / "python"
    if mark.exists():
        return python
    with held(venv.with_suffix(".lock")):
        if mark.exists():  # while we waited
            return python
        shutil.rmtree(venv, ignore_errors=True)  # of one who was killed on the way
        _run(sys.executable, "-m", "venv", venv)
        _run(
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            requirements,
            "-c",
            constraints,
        )
        mark.touch()
    return python


def main() -> None:
    """`python -m moorage_testing.real_services.install`: all that `make test-real` needs, so that its tests find it there."""
    install()
    real = REQUIREMENTS.parent
    install("ceilometer", real / "requirements-ceilometer.txt", real / "constraints-ceilometer.txt")


if __name__ == "__main__":
    main()
