"""Reconcilers run during operations: at every call of an operation one begins, stops at every call of its own, and continues.

Whatever the order, the operation ends as if nobody had looked, and what was stray before is gone once all is quiet.
"""

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec
import pytest

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.ids import ConductorId
from moorage.model.network import Port, mint_mac
from moorage.model.operation import Accepted
from moorage.operations.context import SagaContext
from moorage.operations.delete.delete import Delete
from moorage.operations.interfaces import port_sync
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage_testing.interleave import Turns, together, waiting
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.region_network import NETWORK
from moorage_testing.region_states import attached, attaching, booted, detaching
from moorage_testing.saga_proof import PROVED_OPERATION

OPERATION, RECONCILER = "operation", "reconciler"
STRAY = mint_mac(SERVER, 9)
"""A port whose POST arrived after it was taken back."""

Ready: TypeAlias = Callable[[SmallRegion], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    saga: str
    ready: Ready
    """Makes the world before it, free for the taking, and says what is asked."""


async def _before_boot(small: SmallRegion) -> Any:
    await small.wire_segments()
    await small.fresh(a_server(), PROVED_OPERATION)
    return msgspec.structs.replace(a_boot(PROVED_OPERATION), forced_host="host1")


async def _before_attach(small: SmallRegion, card: Any) -> Any:
    await booted(small)
    await free(small)
    return attaching(card)


async def _before_detach(small: SmallRegion, card: Any) -> Any:
    asked = await detaching(small, card)
    await free(small)
    return asked


async def _before_delete(small: SmallRegion) -> Any:
    await attached(small, "routed")
    await free(small)
    return Delete(a_server(operation=PROVED_OPERATION), 3, "req-delete", "user-1")


async def free(small: SmallRegion) -> None:
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))


CASES = {
    "boot": Case("boot/1", _before_boot),
    "attach of ours": Case("attach_interface/2", partial(_before_attach, card="routed")),
    "attach of the user's": Case("attach_interface/2", partial(_before_attach, card="users")),
    "detach of ours": Case("detach_interface/1", partial(_before_detach, card="routed")),
    "detach of the user's": Case("detach_interface/1", partial(_before_detach, card="users")),
    "delete": Case("delete/4", _before_delete),
}
RECONCILERS: dict[str, Callable[[SagaContext], Awaitable[object]]] = {
    "stray_ports": lambda context: OrphanPorts(context).run(),
    "stray_claims": lambda context: OrphanAllocations(context).run(),
    "port_drift": lambda context: PortDrift(context).run(),
    "quota_usage": lambda context: QuotaUsage(context).run(),
    "an event": lambda context: port_sync.reconcile(context, SERVER),
}


class NobodyBegins:
    """Executors of a world in which no port goes by itself: whoever begins something was misled."""

    async def choose(self, saga: str) -> ConductorId:
        return ConductorId("conductor")

    async def begun(self, new: Accepted) -> None:
        raise AssertionError(f"{new.saga} began")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def world(small: SmallRegion, case: Case) -> Callable[[SagaContext], Awaitable[object]]:
    """A world before the operation, with a stray port in it; and the operation, from the moment it takes the server."""
    asked = await case.ready(small)
    small.network.ports[STRAY] = Port(id=STRAY, network=NETWORK, mac=STRAY, ours=True, device_id=SERVER, index=9)
    saga = SAGAS[case.saga]

    async def operation(context: SagaContext) -> None:
        mine = asked
        if case.saga != "boot/1":
            held = await context.region.write(lambda tx: region_servers.take(tx, SERVER, PROVED_OPERATION, None))
            assert held is not None
            assert held.holder is None
            mine = msgspec.structs.replace(asked, seq=held.seq)
        await execute(saga, PROVED_OPERATION, mine, context, MemoryJournal(first_lines(saga), context.region.write))

    return operation


async def outcome(small: SmallRegion) -> dict[str, Any]:
    """Everything, after all is quiet: what stands in the record is in the network, and claimed."""
    for each in (OrphanPorts, OrphanAllocations, PortDrift, QuotaUsage):
        await cast("Any", each)(small.context).run()
    found = (await records.find(small.context, SERVER)).server
    cards = () if found is None or found.deleted else found.nics
    lost = [nic.port for nic in cards if str(nic.port) not in small.network.ports]
    held = await small.region.read(lambda tx: claim_statements.held(tx, SERVER))
    return {
        **await small.held(),
        "lost": lost,
        "addresses": sorted((nic.index, each.address) for nic in cards for each in nic.addresses),
        "of server": sorted((str(key), amount) for key, amount in held.items()),
        "stray": STRAY in small.network.ports,
        "drift": await small.region.read(claim_statements.drift),
    }


async def run(
    small: SmallRegion, case: Case, reconciler: Callable[[SagaContext], Awaitable[object]], turns: Turns
) -> tuple[dict[str, int], dict[str, Any]]:
    operation = await world(small, case)
    context = waiting(dataclasses.replace(small.context, dispatcher=cast("Any", NobodyBegins())))
    calls = await together(turns, {OPERATION: lambda: operation(context), RECONCILER: lambda: reconciler(context)})
    return calls, await outcome(small)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECONCILERS)
@pytest.mark.parametrize("what", CASES)
async def test_a_reconciler_does_not_disturb_a_running_operation(small: SmallRegion, what: str, name: str) -> None:
    case, reconciler = CASES[what], RECONCILERS[name]
    calls, wanted = await run(small, case, reconciler, ((OPERATION, None), (RECONCILER, None)))
    assert (wanted["lost"], wanted["stray"], wanted["drift"]) == ([], False, [])
    for begins in range(calls[OPERATION] + 1):
        stops = 0
        while True:
            turns: Turns = ((OPERATION, begins), (RECONCILER, stops), (OPERATION, None), (RECONCILER, None))
            made, found = await run(small, case, reconciler, turns)
            assert found == wanted, (
                f"{name} began after {begins} calls of the {what}, and stopped after {stops} of its own"
            )
            stops += 1
            if stops >= made[RECONCILER]:
                break


async def test_a_users_orphan_port_taken_by_an_attach_stays_attached(small: SmallRegion) -> None:
    """Its owner wrote the server on it before: it is stray when it is seen, and a card of the server when it would be let go."""
    for stops in range(1, 6):
        operation = await world(small, CASES["attach of the user's"])
        port = small.network.ports["spare-port"]
        small.network.ports["spare-port"] = msgspec.structs.replace(port, device_id=SERVER)
        context = waiting(small.context)
        lives = {OPERATION: lambda: operation(context), RECONCILER: lambda: OrphanPorts(context).run()}  # noqa: B023
        await together(((RECONCILER, stops), (OPERATION, None), (RECONCILER, None)), lives)
        assert small.network.ports["spare-port"].device_id == SERVER
        assert (await outcome(small))["lost"] == []
