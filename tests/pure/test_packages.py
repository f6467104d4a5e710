"""The roles of a cloud run without the packages that only trials and tests need."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"moorage_embedded", "moorage_testing"}:
            raise ModuleNotFoundError(name, name=name)
        return None


import importlib.util

found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "moorage_embedded" else found(name, package)
sys.meta_path.insert(0, Missing())
"""
"""Written at the beginning of a program: these packages are not installed."""
DEADLINE_S = 120.0


def without_them(program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_every_command_exists_without_the_embedded_package(tmp_path: Path) -> None:
    done = without_them(
        "import importlib\nfrom moorage.__main__ import COMMANDS\n"
        "for module, _ in COMMANDS.values():\n    importlib.import_module(module)\n"
        "print(len(COMMANDS))",
        tmp_path,
    )
    assert (done.returncode, int(done.stdout) > 20) == (0, True), done.stderr


@pytest.mark.parametrize("command", ["up", "embedded", "set"])
def test_the_embedded_role_reports_the_missing_package(command: str, tmp_path: Path) -> None:
    config = tmp_path / "moorage.toml"
    config.write_text(f'data_dir = "{tmp_path / "data"}"\n')
    options = {"up": [], "embedded": ["--config", str(config)], "set": ["--directory", str(tmp_path / "set")]}
    done = without_them(
        f"from moorage.__main__ import main\nsys.exit(main({[command, *options[command]]!r}))", tmp_path
    )
    assert done.returncode == 2
    assert "the package moorage-embedded is not installed" in done.stderr
    assert "Traceback" not in done.stderr
