"""Bring the real neighbours into `.venv-real`, once for each set of pinned versions."""

import hashlib
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
VENV = REPOSITORY / ".venv-real"
REQUIREMENTS = REPOSITORY / "tests" / "real" / "requirements-real.txt"
CONSTRAINTS = REPOSITORY / "tests" / "real" / "constraints-real.txt"
INSTALL_DEADLINE_S = 900


def _run(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=INSTALL_DEADLINE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def install(venv: Path = VENV, requirements: Path = REQUIREMENTS, constraints: Path = CONSTRAINTS) -> Path:
    """The interpreter of an environment that holds exactly the pinned neighbours; made when missing or out of date."""
    wanted = hashlib.sha256(requirements.read_bytes() + constraints.read_bytes()).hexdigest()
    mark, python = venv / "installed", venv / "bin" / "python"
    if mark.exists() and mark.read_text() == wanted:
        return python
    _run(sys.executable, "-m", "venv", venv)
    _run(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements, "-c", constraints
    )
    mark.write_text(wanted)
    return python
