"""Accepts an operation: writes its row with the first intent, and notifies the conductor that executes it."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NotRequired, TypedDict, TypeVar, Unpack

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.saga import Saga, encode_lines, first_lines
from moorage.sql import Tx
from moorage.store.region import operations as region_operations

SagaT = TypeVar("SagaT", bound=Saga[Any, Any])
_encode = msgspec.json.Encoder().encode


class Origin(TypedDict):
    """Who executes an operation, and its place among the operations of its server."""

    owner: ConductorId
    """The conductor that executes it first."""
    user: str
    seq: int
    """Its number among the operations of its server."""
    request_id: str
    after: NotRequired[OperationId | None]
    """The operation that it waits for."""


def accepted(
    saga: Saga[Any, Any],
    operation: OperationId,
    server: Server,
    input: msgspec.Struct,
    **origin: Unpack[Origin],
) -> Accepted:
    """Return the row to be written: the input as JSON, and the intent of the first step (RULES §2)."""
    lines = first_lines(saga)
    return Accepted(
        id=operation,
        saga=saga.name,
        server=server.id,
        project=server.project,
        user=origin["user"],
        owner=origin["owner"],
        asked=_encode(input),
        journal=encode_lines(lines).encode(),
        head=len(lines),
        request_id=origin["request_id"],
        seq=origin["seq"],
        after=origin.get("after"),
        created_at=time.time_ns() // 1000,
        cell=server.cell,
    )


async def newest_known(context: SagaContext, *sagas: SagaT) -> tuple[SagaT, ConductorId]:
    """Return the first of these sagas that every living conductor knows, and the conductor that is to execute it.
    Raises Unavailable when some conductor does not know the last of them.
    """
    for saga in sagas[:-1]:
        with suppress(Unavailable):
            return saga, await context.dispatcher.choose(saga.name)
    return sagas[-1], await context.dispatcher.choose(sagas[-1].name)


def persist(context: SagaContext, tx: Tx, new: Sequence[Accepted]) -> None:
    """Write the operations of one request, with their notifications, in the transaction that accepts them."""
    region_operations.accept(tx, new)
    if context.notification_writer is not None:
        context.notification_writer.accepted(tx, new)


async def dispatch(
    context: SagaContext,
    new: Accepted | None,
    holder: OperationId | None = None,
    holder_owner: ConductorId | None = None,
) -> None:
    """After the commit: hand the new operation to its conductor; or, when it waits in line, ask the holder of the
    server lock to stop.
    """
    if new is None:
        return
    if holder is None:
        await context.dispatcher.begun(new)
    elif holder_owner is not None:
        await context.dispatcher.cancelled(holder, holder_owner)
