"""What a record says in the other cell, which it does not say where it is copied from: the end of an action, how far a move is."""

from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.model.action import ActionEvent
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus
from moorage.store.cell.record_transfer import RecordCopy


def placed(record: RecordCopy, cell: CellId) -> RecordCopy:
    """Moves that say nothing of the cells of their hosts were within this one: they go on saying so in another one."""
    migrations = [
        msgspec.structs.replace(each, source_cell=each.source_cell or cell, dest_cell=each.dest_cell or cell)
        for each in record.migrations
    ]
    return msgspec.structs.replace(record, migrations=migrations)


def finished(record: RecordCopy, request_id: str, events: Sequence[ActionEvent], now: int) -> RecordCopy:
    """That action went well."""
    ended: dict[str, Any] = {"events": tuple(events), "updated_at": now, "finished_at": now, "message": None}
    actions = [
        msgspec.structs.replace(each, **ended) if each.request_id == request_id else each for each in record.actions
    ]
    return msgspec.structs.replace(record, actions=actions)


def with_status(record: RecordCopy, move: str, status: MigrationStatus, now: int, **changes: Any) -> RecordCopy:
    """That move is so far."""
    changed: dict[str, Any] = {"status": status, "updated_at": now, **changes}
    migrations = [msgspec.structs.replace(each, **changed) if each.uuid == move else each for each in record.migrations]
    return msgspec.structs.replace(record, migrations=migrations)
