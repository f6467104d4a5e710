"""The trees of tables of a region and its cells."""

import importlib
import pkgutil
from pathlib import Path

import moorage.store.cell as _cell_room
import moorage.store.region as _region_room
import moorage.store.region.placement as _placement_room
from moorage.sql.migrate import Tree
from moorage.store.cell.tables import cell_metadata
from moorage.store.region.placement.tables import placement_metadata
from moorage.store.region.tables import region_metadata

for _room in (
    _region_room,
    _cell_room,
):  # importing each module of the package declares its tables, so none can be forgotten
    for _module in pkgutil.iter_modules(_room.__path__):
        importlib.import_module(f"{_room.__name__}.{_module.name}")

REGION = Tree("region", region_metadata, Path(_region_room.__path__[0]) / "revisions")
PLACEMENT = Tree("placement", placement_metadata, Path(_placement_room.__path__[0]) / "revisions")
CELL = Tree("cell", cell_metadata, Path(_cell_room.__path__[0]) / "revisions")
