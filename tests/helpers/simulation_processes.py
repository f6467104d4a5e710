"""Simulations in interpreters of their own, where sets have one order."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
PACKAGES = SOURCE.parent / "packages"
PATIENCE_S = 3600.0


def interpreted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python` with these arguments."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(map(str, (SOURCE, SOURCE.parent, PACKAGES / "embedded", PACKAGES / "testing"))),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m moorage_testing.simulation` with these arguments."""
    return interpreted("-m", "moorage_testing.simulation", *arguments)
