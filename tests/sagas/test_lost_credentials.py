"""The network service refuses Moorage's credentials, before or while an interface is attached or detached (S0.10).

Nothing is begun that could not be taken back; and what is under way keeps no delete waiting for credentials that may never come back.
"""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from moorage.clients.replies import CREDENTIALS
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.model.boot_request import NicWish
from moorage.model.errors import Unavailable
from moorage.model.ids import OperationId
from moorage.model.principal import Principal
from moorage.model.server import TaskState
from moorage.operations.delete.delete import Delete
from moorage.operations.gates import Gates
from moorage.operations.interfaces import attach_checks, attach_interface, detach_interface
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.operations.steps.guest_respawn import cards_of
from moorage.saga import MemoryJournal, Stuck, Unwound, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server
from moorage_testing.region_moved import live_migrating, resizing
from moorage_testing.region_states import Card, attached, attaching, booted, detaching
from moorage_testing.saga_proof import PROVED_OPERATION

DELETE = OperationId("delete")


class LosingTransport:
    """The network service, which takes our credentials for so many calls more."""

    def __init__(self, under: Any, calls: int) -> None:
        self._under, self.calls = under, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._under, name)

        async def called(*args: Any, **kwargs: Any) -> Any:
            if self.calls <= 0:
                raise Unavailable("the network service does not accept our credentials", code=CREDENTIALS)
            self.calls -= 1
            return await found(*args, **kwargs)

        return called


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def execute_without_credentials(
    small: SmallRegion, name: str, asked: Any, calls: int, operation: OperationId = PROVED_OPERATION
) -> Any:
    context = dataclasses.replace(small.context, network=cast("Any", LosingTransport(small.network, calls)))
    journal = MemoryJournal(first_lines(SAGAS[name]), small.transact)
    return await execute(SAGAS[name], operation, asked, context, journal, clock=ManualClock())


async def ask_to_delete(small: SmallRegion) -> None:
    await small.region.write(lambda tx: region_servers.queue(tx, SERVER, DELETE, TaskState.DELETING))


async def delete(small: SmallRegion, seq: int) -> dict[str, Any]:
    """The delete that waited has its turn, with credentials that work; what is held after a round."""
    await execute_without_credentials(
        small, "delete/4", Delete(a_server(operation=DELETE), seq, "req-delete", "user-1"), 1_000, DELETE
    )
    await OrphanPorts(small.context).run()
    return await small.held()


@pytest.mark.parametrize("card", ["made", "users"])
@pytest.mark.parametrize("calls", [0, 1])
async def test_an_attach_that_cannot_be_undone_delays_no_delete(small: SmallRegion, card: Card, calls: int) -> None:
    await booted(small)
    await ask_to_delete(small)
    with pytest.raises(Unwound):
        await execute_without_credentials(small, "attach_interface/2", attaching(card), calls)
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation == DELETE
    held = await delete(small, 3)
    assert (held["claims"], held["guests"], held["rows"]) == (0, 0, 0)
    assert [port for port in small.network.ports.values() if port.device_id or port.ours] == []


@pytest.mark.parametrize("card", ["made", "users"])
async def test_a_detach_that_cannot_release_its_port_delays_no_delete(small: SmallRegion, card: Card) -> None:
    asked = await detaching(small, card)
    await attached(small, card)
    await ask_to_delete(small)
    await execute_without_credentials(small, "detach_interface/1", msgspec.structs.replace(asked, seq=3), 1)
    held = await delete(small, 4)
    assert (held["claims"], held["guests"], held["rows"]) == (0, 0, 0)
    assert [port for port in small.network.ports.values() if port.device_id or port.ours] == []


async def test_a_port_waits_for_credentials_unless_the_server_is_deleted(small: SmallRegion) -> None:
    """The server lives on, and its port with it: it is not forgotten."""
    await booted(small)
    with pytest.raises(Stuck):
        await execute_without_credentials(small, "attach_interface/2", attaching("made"), 1)
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation == PROVED_OPERATION


async def test_attach_and_detach_are_refused_without_credentials(small: SmallRegion) -> None:
    await booted(small)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    shut = Gates(early_ports=False, bind_in_conductor=False, credentials=False)
    context = dataclasses.replace(
        small.context, gates=lambda: shut, network=cast("Any", LosingTransport(small.network, 0))
    )
    server = (await records.find(context, SERVER)).server
    assert server is not None
    principal = Principal(user="user-1", project=server.project)
    wish = NicWish("network-1", None, None, None)

    def check(now: Any) -> None:
        return None

    with pytest.raises(Unavailable, match="conductors") as attach:
        await attach_interface.begin(context, principal, "token", server, attach_checks.AttachWish(wish), check=check)
    with pytest.raises(Unavailable, match="conductors") as detach:
        await detach_interface.begin(context, principal, server, str(server.nics[0].port), check=check)
    assert {attach.value.code, detach.value.code} == {CREDENTIALS}
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.operation is None


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("saga", ["live_migrate/1", "resize/1"])
async def test_a_move_that_is_not_shown_what_its_ports_are_guaranteed_touches_nothing(
    saga: str, recorded: bool, small: SmallRegion
) -> None:
    """An account without the role `admin` reads ports without `resource_request`: they would be bound without their guarantee.

    `recorded`: only the record still says that there is one, for who may not see the binding profile either.
    """
    asked = await (live_migrating if saga == "live_migrate/1" else resizing)(small, guarantees=True)
    for id, port in small.network.ports.items():
        profile = {} if recorded else port.profile
        small.network.ports[id] = msgspec.structs.replace(
            port, resource_request=None, request_shown=False, profile=profile
        )
    held, ports = await small.held(), dict(small.network.ports)
    with pytest.raises(Unwound) as unwound:
        await execute(
            SAGAS[saga], PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(SAGAS[saga]), small.transact)
        )
    assert unwound.value.at == "read_ports"
    assert "does not show what the server's ports are guaranteed" in str(unwound.value.cause)
    assert small.network.ports == ports
    after = await small.held()
    assert {key: after[key] for key in ("guarantees", "guests") if key in after} == {
        key: held[key] for key in ("guarantees", "guests") if key in held
    }


async def test_a_move_of_a_port_that_shows_that_it_asks_for_nothing_goes_on(small: SmallRegion) -> None:
    """Its policy was taken away, and the binding has not forgotten it."""
    asked = await live_migrating(small, guarantees=True)
    for id, port in small.network.ports.items():
        small.network.ports[id] = msgspec.structs.replace(port, resource_request=None)
    cards = await cards_of(small.context, asked.server)
    assert len(cards.ports) == len(asked.server.nics)
