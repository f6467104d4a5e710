"""Writes the notifications of operations into the outbox, in the transaction that makes them true.

A commit with notifications costs one more statement, whatever their number; a commit without costs none. A notification
that cannot be built is logged and left out: no operation fails because of its notifications.
"""

import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from moorage.model.ids import OperationId
from moorage.model.notification import Notification, StateChanges, StateUpdate, without_secrets
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.operations.notifications.audit_periods import AuditUnit, running
from moorage.operations.notifications.event import ServerEvent
from moorage.operations.notifications.event_map import EVENT_SOURCES
from moorage.operations.records.servers import ChangeListener
from moorage.saga import Line, Run, Saga
from moorage.sql import Tx
from moorage.store.outbox import OutboxTable
from moorage.store.region.notifications import OUTBOX

logger = logging.getLogger(__name__)

SEEN_MAX = 1_000

ChangeEvent: TypeAlias = Literal[
    "update", "lock", "unlock", "live_migration_force_complete.start", "live_migration_force_complete.end"
]


class OutboxWriter:
    """The `operations.context.NotificationWriter` of a region whose operators want notifications."""

    def __init__(self, host: str, state_changes: StateChanges = "", audit_unit: AuditUnit = "month") -> None:
        self.host = host
        """The name of this process's machine, for publisher ids."""
        self.state_changes: StateChanges = state_changes
        self.audit_unit: AuditUnit = audit_unit
        self.failures = 0
        """How many notifications could not be built since the start."""
        self._written: dict[OperationId, Server] = {}

    def seen(self, operation: OperationId, server: Server) -> None:
        """Keep the record that a step found until the operation ends, or until there are too many."""
        while len(self._written) >= SEEN_MAX:
            self._written.pop(next(iter(self._written)))
        self._written[operation] = server

    def accepted(self, tx: Tx, begun: Sequence[Accepted]) -> None:
        """Write notifications of the operations of one request, in the commit that accepts them."""
        notifications: list[Notification] = []
        for new in begun:
            source = EVENT_SOURCES.get(new.saga.partition("/")[0])
            if source is None:
                continue
            try:
                input = msgspec.json.decode(new.asked, type=source.input_type)
                notifications += self._stamped(new.id, new.saga, input, source.accepted(input))
            except Exception:
                self.failures += 1
                logger.exception("notifications of accepted %s %s could not be built", new.saga, new.id)
        OUTBOX.write(tx, notifications)

    def on_commit(self, tx: Tx, saga: Saga[Any, Any], run: Run[Any, Any], lines: Sequence[Line]) -> None:
        """Write the notifications of a commit: `lines` are the journal lines that it writes."""
        source = EVENT_SOURCES.get(saga.name.partition("/")[0])
        if source is None:
            return
        notifications: list[Notification] = []
        written = self._written.get(run.operation)
        for line in lines:
            try:
                notifications += self._stamped(run.operation, saga.name, run.input, source.events(run, line, written))
            except Exception:
                self.failures += 1
                logger.exception("notifications of a commit of %s %s could not be built", saga.name, run.operation)
        OUTBOX.write(tx, notifications)

    def of_change(self, principal: Principal, request_id: str, event: ChangeEvent) -> ChangeListener:
        """Return a listener for a record that changes without an operation: a lock, another name, metadata, tags.

        As in Nova, `lock` and `unlock` and changes of tags are always notified, the rest only when operators want
        updates.
        """

        def write_change(tx: Tx, outbox: OutboxTable, before: Server, after: Server) -> None:
            tags = before.tags != after.tags
            if event == "update" and not (tags or self.state_changes):
                return
            now = time.time_ns() // 1000
            outbox.write(
                tx,
                [
                    Notification(
                        id=str(uuid.uuid4()),
                        event=event,
                        at=now,
                        server=without_secrets(after),
                        service="api" if tags or event != "update" else "compute",
                        host=self.host,
                        request_id=request_id,
                        user=principal.user,
                        project=principal.project or "",
                        update=_difference(before, after) if event == "update" else None,
                        period=running(now, self.audit_unit) if event == "update" else None,
                    )
                ],
            )

        return write_change

    def _stamped(
        self, operation: OperationId, saga: str, input: Any, events: Iterable[ServerEvent]
    ) -> list[Notification]:
        """Time, publisher and server: everything that does not depend on what happened."""
        now = time.time_ns() // 1000
        return [
            Notification(
                id=_id(operation, each),
                event=each.event,
                at=now,
                server=without_secrets(each.server),
                service=each.service if each.host is None else each.for_host,
                host=each.host or self.host,
                told_by=self.host if each.host is not None and each.for_host == "conductor" else "",
                request_id=getattr(input, "request_id", ""),
                global_request_id=getattr(input, "global_request_id", ""),
                user=getattr(input, "user", "") or each.server.user,
                project=getattr(input, "by_project", "") or each.server.project,
                trouble=each.trouble and msgspec.structs.replace(each.trouble, saga=saga.partition("/")[0]),
                update=each.update,
                volume=each.volume,
                new_volume=each.new_volume,
                new_flavor=each.new_flavor,
                period=None if each.update is None else running(now, self.audit_unit),
                snapshot_image=each.image,
            )
            for each in events
            if each.update is None or self._wanted(each)
        ]

    def _wanted(self, event: ServerEvent) -> bool:
        """Whether operators want this change of states (Nova's `notify_on_state_change`)."""
        update, now = event.update, event.server
        if not self.state_changes or update is None:
            return False
        if update.old_state is None or update.old_state != now.vm_state.value:
            return True
        return self.state_changes == "vm_and_task_state" and update.old_task_state != now.task_state


def _difference(before: Server, after: Server) -> StateUpdate:
    return StateUpdate(
        before.vm_state.value,
        None if before.task_state is None else before.task_state.value,
        before.name if before.name != after.name else None,
    )


def _id(operation: OperationId, event: ServerEvent) -> str:
    """The same id for the same event; an operation may change a server's states more than once in an attempt."""
    states = f"/{event.server.vm_state}/{event.server.task_state}" if event.update is not None else ""
    return f"{operation}/{event.attempt}/{event.event}{states}"
