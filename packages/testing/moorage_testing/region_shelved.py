"""A small region with servers that were shelved, for proofs."""

import msgspec

from moorage.model.ids import OperationId
from moorage.model.resources import needs_of
from moorage.model.server import Server, Shelved, VmState
from moorage.operations.registry import SAGAS
from moorage.operations.shelve.move_record import MoveRecord
from moorage.operations.shelve.shelve import Shelve, ShelveOffload
from moorage.operations.shelve.unshelve_in_place import UnshelveInPlace
from moorage.operations.steps import servers as records
from moorage.operations.unshelve_input import Unshelve
from moorage.placement.inventory import host_id
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion, a_server
from moorage_testing.region_moved import wired_apart
from moorage_testing.region_states import IMAGE, booted_from_volume, imaged
from moorage_testing.saga_proof import PROVED_OPERATION

SHELVED, MOVED = OperationId("shelved"), OperationId("moved")


def shelved_server(operation: OperationId = PROVED_OPERATION) -> Server:
    """The record, as the API read it."""
    return a_server(
        operation=operation,
        cell=CELLS[0],
        vm_state=VmState.SHELVED_OFFLOADED,
        task_state=None,
        shelved=Shelved(1, IMAGE, "host1"),
    )


def shelving(*, offload: bool, operation: OperationId = PROVED_OPERATION) -> Shelve:
    server = a_server(operation=operation, cell=CELLS[0], host="host1", vm_state=VmState.ACTIVE, task_state=None)
    return Shelve(server, 2, IMAGE, offload, "req-shelve", "user-1")


async def shelved(
    small: SmallRegion, *, offload: bool, routed: bool = False, guarantees: bool = False, across: bool = False
) -> SmallRegion:
    """One server that was shelved, on its host still or not, held by the operation that is to be proved.

    `across`: no host is on its segment any more.
    """
    if across:
        await small.wire_host4()
        await wired_apart(small, "host1")
    await imaged(small, routed=routed, guarantees=guarantees, operation=SHELVED)
    saga = SAGAS["shelve/1"]
    asked = shelving(offload=offload, operation=SHELVED)
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    asked = msgspec.structs.replace(asked, server=found.server)
    await execute(saga, SHELVED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    if across:
        await wired_apart(small)
        small.watches_addresses = True
    return small


async def recorded_elsewhere(small: SmallRegion) -> SmallRegion:
    """The same server, off its host, whose record is to go to another cell."""
    await shelved(small, offload=True)
    small.watches_cells = True
    return small


def moving_record() -> MoveRecord:
    """To the other cell."""
    return MoveRecord(shelved_server(), 3, *CELLS, "req-move", "user-1")


async def shelved_elsewhere(small: SmallRegion, *, routed: bool = False) -> SmallRegion:
    """The same server, off its host, with its record in the second cell, where one host is."""
    await small.wire_host4()
    await shelved(small, offload=True, routed=routed)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    await small.hand_to(MOVED)
    saga = SAGAS["move_record/1"]
    await execute(saga, MOVED, moving_record(), small.context, MemoryJournal(first_lines(saga), small.transact))
    await small.hand_to(PROVED_OPERATION)
    small.watches_cells = True
    return small


def leaving_its_cell(*, may_stay: bool = False) -> Unshelve:
    """What is asked of its unshelve, on a host of any cell; `may_stay`: of its own first."""
    asked, away = unshelving(), () if may_stay else (host_id("host2"),)
    server = msgspec.structs.replace(shelved_server(), cell=CELLS[1])
    return msgspec.structs.replace(asked, server=server, seq=4, different_host=away, cross_cell=True)


async def with_volumes(small: SmallRegion, *, shelved: bool = False, offload: bool = False) -> Server:
    """A server that boots from a volume and has another one, perhaps shelved, and its record."""
    await booted_from_volume(small, SHELVED)
    server = await _recorded(small)
    if shelved:
        saga, asked = SAGAS["shelve/1"], Shelve(server, 2, None, offload, "req-shelve", "user-1")
        await execute(saga, SHELVED, asked, small.context, MemoryJournal(first_lines(saga), small.transact))
        server = await _recorded(small)
    await small.hand_to(PROVED_OPERATION)
    return server


async def _recorded(small: SmallRegion) -> Server:
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    return found.server


async def volumes_world(small: SmallRegion, *, shelved: bool = False, offload: bool = False) -> SmallRegion:
    await with_volumes(small, shelved=shelved, offload=offload)
    return small


def offloading() -> ShelveOffload:
    return ShelveOffload(shelved_server(), 3, "req-offload", "user-1")


def unshelving(*, across: bool = False) -> Unshelve:
    return Unshelve(
        server=shelved_server(),
        seq=3,
        image=IMAGE,
        needs=needs_of(vcpus=1, memory_mb=64, disk_gb=1),
        across=across,
        request_id="req-unshelve",
        user="user-1",
    )


def unshelving_in_place() -> UnshelveInPlace:
    return UnshelveInPlace(shelved_server(), 3, "req-unshelve", "user-1")
