"""Differences between a record and its copy in another cell: the end of an action, the status of a move."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.model.action import ActionEvent
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus
from moorage.store.cell import actions
from moorage.store.cell.record_transfer import RecordCopy


def placed(record: RecordCopy, cell: CellId) -> RecordCopy:
    """Moves without cells in their records were within the source cell; the copy names that cell."""
    migrations = [
        msgspec.structs.replace(each, source_cell=each.source_cell or cell, dest_cell=each.dest_cell or cell)
        for each in record.migrations
    ]
    return msgspec.structs.replace(record, migrations=migrations)


def finished(record: RecordCopy, request_id: str, events: Sequence[ActionEvent], now: int) -> RecordCopy:
    """The copy with this action finished successfully."""
    ended: dict[str, Any] = {"updated_at": now, "finished_at": now, "message": None}
    finished = [
        msgspec.structs.replace(each, events=actions.with_times(events, each.events), **ended)
        if each.request_id == request_id
        else each
        for each in record.actions
    ]
    return msgspec.structs.replace(record, actions=finished)


def with_status(record: RecordCopy, move: str, status: MigrationStatus, now: int, **changes: Any) -> RecordCopy:
    """The copy with the new status of this move."""
    changed: dict[str, Any] = {"status": status, "updated_at": now, **changes}
    migrations = [msgspec.structs.replace(each, **changed) if each.uuid == move else each for each in record.migrations]
    return msgspec.structs.replace(record, migrations=migrations)
