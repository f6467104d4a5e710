"""SAGAS: name/version → saga; what a conductor of this release can tell, and what the proof breaks."""

from collections.abc import Mapping
from typing import Any

from moorage.operations.assisted_snapshot import ASSISTED_SNAPSHOT
from moorage.operations.attach_interface import ATTACH_INTERFACE, ATTACH_INTERFACE_1
from moorage.operations.attach_volume import ATTACH_VOLUME
from moorage.operations.boot import BOOT, BOOT_WITH_VOLUMES
from moorage.operations.confirm_resize import CONFIRM_IN_OTHER_CELL, CONFIRM_RESIZE
from moorage.operations.crash_dump import CRASH_DUMP
from moorage.operations.cross_cell_resize import RESIZE_ACROSS_CELLS
from moorage.operations.delete import (
    DELETE,
    DELETE_BEFORE_SHOWN,
    DELETE_IN_ALL_CELLS,
    DELETE_WITH_MOVES,
    DELETE_WITH_VOLUMES,
)
from moorage.operations.detach_interface import DETACH_INTERFACE
from moorage.operations.detach_volume import DETACH_VOLUME
from moorage.operations.evacuate import EVACUATE, EVACUATE_ACROSS
from moorage.operations.evacuate_cross_cell import EVACUATE_CROSS_CELL
from moorage.operations.extend_volume import EXTEND_VOLUME
from moorage.operations.live_migrate import LIVE_MIGRATE
from moorage.operations.live_migrate_cross_cell import LIVE_MIGRATE_CROSS_CELL
from moorage.operations.move_record import MOVE_RECORD
from moorage.operations.power import POWER
from moorage.operations.rebuild import REBUILD
from moorage.operations.rescue import RESCUE, UNRESCUE
from moorage.operations.resize import RESIZE
from moorage.operations.revert_resize import REVERT_RESIZE, REVERT_TO_OTHER_CELL
from moorage.operations.shelve import SHELVE_OFFLOAD, SHELVE_SAGA
from moorage.operations.snapshot import SNAPSHOT
from moorage.operations.snapshot_volumes import SNAPSHOT_STILL, SNAPSHOT_VOLUMES
from moorage.operations.soft_delete import RESTORE, SOFT_DELETE
from moorage.operations.swap_volume import SWAP_VOLUME
from moorage.operations.unshelve import UNSHELVE, UNSHELVE_ACROSS
from moorage.operations.unshelve_cross_cell import UNSHELVE_CROSS_CELL
from moorage.operations.unshelve_in_place import UNSHELVE_IN_PLACE
from moorage.saga import Saga

SAGAS: Mapping[str, Saga[Any, Any]] = {
    saga.name: saga
    for saga in (
        BOOT,
        BOOT_WITH_VOLUMES,
        DELETE,
        DELETE_WITH_VOLUMES,
        POWER,
        ATTACH_INTERFACE,
        ATTACH_INTERFACE_1,
        DETACH_INTERFACE,
        CRASH_DUMP,
        REBUILD,
        SNAPSHOT,
        SNAPSHOT_VOLUMES,
        SNAPSHOT_STILL,
        SHELVE_SAGA,
        SHELVE_OFFLOAD,
        UNSHELVE,
        UNSHELVE_ACROSS,
        UNSHELVE_IN_PLACE,
        RESCUE,
        UNRESCUE,
        ATTACH_VOLUME,
        DETACH_VOLUME,
        SWAP_VOLUME,
        EXTEND_VOLUME,
        ASSISTED_SNAPSHOT,
        SOFT_DELETE,
        RESTORE,
        RESIZE,
        CONFIRM_RESIZE,
        REVERT_RESIZE,
        LIVE_MIGRATE,
        DELETE_WITH_MOVES,
        DELETE_BEFORE_SHOWN,
        EVACUATE,
        EVACUATE_ACROSS,
        MOVE_RECORD,
        RESIZE_ACROSS_CELLS,
        CONFIRM_IN_OTHER_CELL,
        REVERT_TO_OTHER_CELL,
        DELETE_IN_ALL_CELLS,
        UNSHELVE_CROSS_CELL,
        EVACUATE_CROSS_CELL,
        LIVE_MIGRATE_CROSS_CELL,
    )
}
