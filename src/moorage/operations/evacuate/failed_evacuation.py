"""Cleans up a failed evacuation: the server stays on its old host, which is silent, with its ports and its record."""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from moorage.clients.network.binding_rules import BINDING_FAILED
from moorage.model.errors import NotFound
from moorage.model.ids import CellId
from moorage.model.migration import MigrationStatus
from moorage.model.network import BindOptions, BindRefused, FixedIp, Port
from moorage.model.server import Server, VmState
from moorage.operations.boot.boot import Claim
from moorage.operations.context import SagaContext
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.steps import fencing, move_ports, moving, server_action
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import as_it_was
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.hosts import names_of
from moorage.saga import Cause, Run
from moorage.sql import Tx
from moorage.store.cell import migrations

UNTOUCHED_AT = "fence_source"
"""The step that refuses before anything is changed."""

logger = logging.getLogger(__name__)


def failed(input: Evacuate, server: Server, turned: Cause) -> Server:
    """The record after the failure: unchanged when proof was lacking or an agent was too old, because nothing was
    changed then.

    Later its volumes are attached to no host while its host is silent; a server without volumes is unchanged also then.
    """
    now = server_action.now_us()
    unproved = turned.code == fencing.NOT_FENCED and (turned.step == UNTOUCHED_AT or not server.volumes)
    untouched = unproved or turned.code == move_ports.HOST_TOO_OLD
    state = input.server.vm_state if untouched else VmState.ERROR
    return msgspec.structs.replace(as_it_was(server, turned, now), vm_state=state)


async def bind_back(
    run: Run[Evacuate, SagaContext], cards: Cards, claim: Claim, keeps: Mapping[int, Sequence[FixedIp]] | None
) -> None:
    """Bind the ports to the old host. `keeps`: their former addresses, when they may have got others.

    A port that the network service cannot bind there stays unbound; it is still the server's, with its addresses.
    """
    end, server = moving.current_end(run.input.server), run.input.server.id
    await records.not_overtaken(run, end.cell)
    tried = (end.name, *names_of(run.context.placement.world(), run.tried), claim.name)
    options = BindOptions(profiles=move_ports.profiles_of(cards), tried=tried, keeps=keeps)

    async def bind(ports: Sequence[Port]) -> tuple[Port, ...]:
        return await run.context.network.bind_ports(server, end.name, end.availability_zone, ports, options)

    try:
        await move_ports.without_deleted(run, cards.ports, bind)
    except BindRefused as refused:
        if refused.code != BINDING_FAILED:
            raise
        # # The old host's network agent is down like the host, so the network service cannot bind ports there.
        logger.warning("%s: its ports are on no host: %s", server, refused.public)
        again = {port.id: keeps[port.index] for port in cards.ports if port.index in keeps} if keeps else None
        await run.context.network.take_off_host(server, [port.id for port in cards.ports], keeps=again)


async def keep_guest(run: Run[Evacuate, SagaContext], cell: CellId) -> None:
    """Cancel the order to destroy the old guest: nothing starts elsewhere any more, and an old host that returns keeps
    its guest off.
    """

    def also(tx: Tx) -> None:
        migration = migrations.get(tx, run.input.migration)
        if migration is not None and migration.status is MigrationStatus.MIGRATING:
            moving.with_status(tx, run.input.migration, MigrationStatus.PRE_MIGRATING)

    same = lambda now: now  # noqa: E731  only the fence is checked
    try:
        await records.change(run.context, cell, run.input.server.id, records.fence(run), same, also)
    except NotFound:
        return  # the move's record goes with the server's
