"""SAGAS: name/version → saga; what a conductor of this release can execute, and what the proof tests."""

from collections.abc import Mapping
from typing import Any

from moorage.operations.boot.boot import BOOT, BOOT_THAT_WAITS, BOOT_WITH_VOLUMES, BOOT_WITH_VOLUMES_THAT_WAITS
from moorage.operations.debts.settle_debt import SETTLE_DEBT
from moorage.operations.delete.delete import (
    DELETE,
    DELETE_BEFORE_SHOWN,
    DELETE_IN_ALL_CELLS,
    DELETE_WITH_MOVES,
    DELETE_WITH_VOLUMES,
)
from moorage.operations.delete.soft_delete import RESTORE, SOFT_DELETE
from moorage.operations.evacuate.cross_cell_evacuate import EVACUATE_CROSS_CELL
from moorage.operations.evacuate.evacuate import EVACUATE, EVACUATE_ACROSS
from moorage.operations.guest.crash_dump import CRASH_DUMP
from moorage.operations.guest.power import POWER
from moorage.operations.guest.rebuild import REBUILD
from moorage.operations.guest.repair_devices import REPAIR_DEVICES
from moorage.operations.guest.rescue import RESCUE, UNRESCUE
from moorage.operations.images.snapshot import SNAPSHOT
from moorage.operations.images.snapshot_volumes import SNAPSHOT_STILL, SNAPSHOT_VOLUMES
from moorage.operations.interfaces.attach_interface import ATTACH_INTERFACE, ATTACH_INTERFACE_1
from moorage.operations.interfaces.detach_interface import DETACH_INTERFACE
from moorage.operations.live_migrate.cross_cell_live_migrate import LIVE_MIGRATE_CROSS_CELL
from moorage.operations.live_migrate.live_migrate import LIVE_MIGRATE
from moorage.operations.resize.confirm_resize import CONFIRM_IN_OTHER_CELL, CONFIRM_RESIZE
from moorage.operations.resize.cross_cell_resize import RESIZE_ACROSS_CELLS
from moorage.operations.resize.resize import RESIZE
from moorage.operations.resize.revert_resize import REVERT_RESIZE, REVERT_TO_OTHER_CELL
from moorage.operations.shelve.cross_cell_unshelve import UNSHELVE_CROSS_CELL
from moorage.operations.shelve.move_record import MOVE_RECORD
from moorage.operations.shelve.shelve import SHELVE_OFFLOAD, SHELVE_SAGA
from moorage.operations.shelve.unshelve import UNSHELVE, UNSHELVE_ACROSS
from moorage.operations.shelve.unshelve_in_place import UNSHELVE_IN_PLACE
from moorage.operations.volumes.assisted_snapshot import ASSISTED_SNAPSHOT
from moorage.operations.volumes.attach_volume import ATTACH_VOLUME
from moorage.operations.volumes.detach_volume import DETACH_VOLUME
from moorage.operations.volumes.extend_volume import EXTEND_VOLUME
from moorage.operations.volumes.swap_volume import SWAP_VOLUME
from moorage.saga import Saga

SAGAS: Mapping[str, Saga[Any, Any]] = {
    saga.name: saga
    for saga in (
        BOOT,
        BOOT_WITH_VOLUMES,
        BOOT_THAT_WAITS,
        BOOT_WITH_VOLUMES_THAT_WAITS,
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
        SETTLE_DEBT,
        REPAIR_DEVICES,
    )
}
