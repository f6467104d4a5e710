"""`moorage limits migrate` says that nothing is missing only after everything was looked at."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from moorage.main import limits_command
from moorage.main.databases import Databases
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.operations.limits_migration import DISK
from moorage.sql import open_database
from moorage.store.region.tables import region_metadata

EVERYTHING = {DISK: 100, "class:VCPU": 20, "class:MEMORY_MB": -1}


class Silent:
    """A cell that does not answer."""

    async def read(self, *_: Any) -> None:
        raise Unavailable("The database of cell1 does not answer.")


@pytest.mark.parametrize(
    ("existing", "scan", "code"),
    [
        (EVERYTHING, True, limits_command.NO_DATABASE),
        (EVERYTHING, False, limits_command.DONE),
        ({}, True, limits_command.MISSING),
    ],
)
async def test_a_cell_that_does_not_answer(
    tmp_path: Path, existing: dict[str, int], scan: bool, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    region = await open_database(f"sqlite:///{tmp_path}/region.db", name="region", durability="process")
    await region.create(region_metadata)
    cells: Any = {CellId("cell1"): Silent()}
    words = argparse.Namespace(no_embedded_flavor_scan=not scan, project_id=None)
    lines: list[str] = []
    try:
        found = await limits_command._scan(Databases(region, cells), existing, words, lines.append, lines.append)
    finally:
        await region.close()
    assert found == code
    assert ("cells cell1 did not answer" in capsys.readouterr().err) == scan
    assert ("all classes of resources have registered limits" in lines) == (code == limits_command.DONE)
