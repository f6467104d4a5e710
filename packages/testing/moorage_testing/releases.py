"""The release before this one, out of this repository's history, in an environment of its own: what the tests of upgrades run together with this one.

Source and environment lie in the machine's cache, made once for a commit.  Where the earlier release pins nothing else than we
do, its environment borrows our packages, and is there in a moment; otherwise it is installed.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from moorage import __version__
from moorage.model.private_files import private_file
from moorage_testing.real_services.install import REPOSITORY, cache, held

RELEASES = REPOSITORY / "tests" / "upgrade" / "RELEASES"
INSTALL_DEADLINE_S = 600.0
GIT_DEADLINE_S = 60.0
TABLES_SINCE = {
    "0.1.0": ("[api.volume]", "[volume]", "[api.metadata]", "[api.console]", "[security_compliance]", "[image_user]")
}
"""Release → tables of settings that it does not know."""
EXTRAS = "client,nats,notifications,postgres"


@dataclass(frozen=True)
class Release:
    version: str
    commit: str

    @property
    def order(self) -> tuple[int, ...]:
        return _order(self.version)


@dataclass(frozen=True)
class Installed:
    """A release that can be run: `[python, "-m", "moorage", …]` in this environment."""

    release: Release
    python: Path
    environment: dict[str, str]

    def configuration(self, path: Path) -> Path:
        """The same settings without the tables that came after it: it refuses what it does not know."""
        kept, keep = [], True
        for line in path.read_text().splitlines(keepends=True):
            if line.startswith("["):
                keep = line.strip() not in TABLES_SINCE.get(self.release.version, ())
            if keep:
                kept.append(line)
        mine = path.with_name(f"{path.stem}-{self.release.version}{path.suffix}")
        private_file(mine).write_text("".join(kept))
        return mine


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


def releases(text: str) -> list[Release]:
    """What `RELEASES` says, the oldest first."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return sorted((Release(version, commit) for version, commit in lines), key=lambda each: each.order)


def last_release(now: str = __version__) -> Release:
    """The newest release before this version.  Raises LookupError when there is none."""
    before = [each for each in releases(RELEASES.read_text()) if each.order < _order(now)]
    if not before:
        raise LookupError(f"{RELEASES} names no release before {now}")
    return before[-1]


def installed(release: Release) -> Installed:
    """The release, from its commit.  Raises RuntimeError when the commit is not in this clone."""
    source = _source(release)
    own = sorted(each for each in sys.path if each.endswith("site-packages"))
    pins, theirs = _pins(REPOSITORY / "constraints.txt"), _pins(source / "constraints.txt")
    borrows = theirs.items() <= pins.items()
    what = "\n".join([sys.version, *(own if borrows else ()), *map("==".join, sorted(theirs.items()))])
    place = cache() / f"release-{release.commit[:12]}-{sha256(what.encode()).hexdigest()[:12]}"
    python, mark = place / "bin" / "python", place / "installed"
    with held(place.with_suffix(".lock")):
        if not mark.exists():
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=not borrows)
            if borrows:
                _borrow(place, [*map(str, _packages(source)), *own])
            else:
                _install(python, source)
            mark.touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return Installed(release, python, kept)


def _source(release: Release) -> Path:
    place = cache() / f"release-{release.commit[:12]}"
    with held(place.with_suffix(".lock")):
        if (place / "pyproject.toml").exists():
            return place
        if _git("cat-file", "-e", f"{release.commit}^{{commit}}").returncode:
            raise RuntimeError(
                f"release {release.version} is commit {release.commit}, which this clone does not have: "
                "the upgrade tests need the whole history (git fetch --unshallow)"
            )
        cache().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache()) as room:
            archive = Path(room, "release.tar")
            made = _git("archive", "--output", str(archive), release.commit)
            if made.returncode:
                raise RuntimeError(f"git archive failed: {made.stderr}")
            with tarfile.open(archive) as tar:
                tar.extractall(Path(room, "tree"), filter="data")
            Path(room, "tree").rename(place)  # whole, or not there
    return place


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, timeout=GIT_DEADLINE_S, check=False
    )


def _pins(constraints: Path) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in constraints.read_text().splitlines()]
    pairs = [line.split("==", 1) for line in lines if "==" in line]
    return {name.lower(): version for name, version in pairs}


def _borrow(place: Path, paths: Iterable[str]) -> None:
    """Path files are read in the environment's own packages alone, so an editable install of ours stays unseen."""
    (packages,) = (place / "lib").glob("python*/site-packages")
    (packages / "release.pth").write_text("\n".join(paths) + "\n")


def _packages(source: Path) -> list[Path]:
    """Where a release has its Python packages; those up to 0.1.0 have one directory."""
    return [source / "src", *sorted(each.parent for each in source.glob("packages/*/pyproject.toml"))]


def _install(python: Path, source: Path) -> None:
    words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(source / "constraints.txt")]
    done = subprocess.run(
        [str(python), *words, f"{source}[{EXTRAS}]", *map(str, _packages(source)[1:])],
        capture_output=True,
        text=True,
        timeout=INSTALL_DEADLINE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the earlier release cannot be installed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def version_of(found: Installed) -> str:
    """The version that the earlier release reports. Raises RuntimeError when this repository's source was imported
    instead.
    """
    done = subprocess.run(
        [str(found.python), "-c", "import moorage; print(moorage.__version__, moorage.__file__)"],
        capture_output=True,
        text=True,
        timeout=GIT_DEADLINE_S,
        env=found.environment,
        check=True,
    )
    version, _, file = done.stdout.strip().partition(" ")
    if str(REPOSITORY / "src") in file:
        raise RuntimeError(f"the earlier release is ours: {file}")
    return version


__all__ = ["Installed", "Release", "installed", "last_release", "releases", "version_of"]
