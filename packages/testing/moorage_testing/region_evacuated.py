"""A small region with a server whose host is dead: for proofs."""

from typing import Any

import msgspec

from moorage.model.fence_proof import FencedBy, FenceProof
from moorage.model.host import Host
from moorage.model.ids import CellId, HostId
from moorage.model.resources import needs_of
from moorage.model.server import VmState
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.placement.inventory import host_id
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage_testing.region_cells import wire_far_hosts
from moorage_testing.region_fixture import PROJECT, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, recorded, wired_apart
from moorage_testing.region_states import IMAGE, booted_from_volume, imaged
from moorage_testing.saga_proof import PROVED_OPERATION

DEAD = "host1"
CELL = CellId("cell1")


async def evacuable(
    small: SmallRegion,
    *,
    state: VmState = VmState.ACTIVE,
    routed: bool = False,
    guarantees: bool = False,
    volumes: bool = False,
    heard: bool = False,
    across: bool = False,
) -> SmallRegion:
    """A server on host1, which an operator forced down.

    `heard`: its agent speaks all the same, and has the guest, off.  `across`: no other host is on its segment.
    """
    await small.wire_host4()
    if across:
        await wired_apart(small, DEAD)
    if volumes:
        await booted_from_volume(small, PROVED_OPERATION)
    else:
        await imaged(small, state, routed=routed, guarantees=guarantees)
        small.images.whole.pop(IMAGE)
    small.watches_moves = small.fails_to_error = True
    small.watches_addresses = across
    hosts = small.hosts
    await small.cells[CELL].write(_forced_down)
    if heard:
        return small
    hosts.silent.add(DEAD)
    hosts.guests.pop((DEAD, SERVER))
    hosts.disks = {each for each in hosts.disks if each[0] != DEAD}
    return small


async def evacuable_elsewhere(small: SmallRegion, **world: Any) -> SmallRegion:
    """The same server, and hosts in the other cell that it may go to."""
    await wire_far_hosts(small.engine)
    await evacuable(small, **world)
    small.watches_cells = True
    return small


async def evacuating_elsewhere(small: SmallRegion, *, may_stay: bool = False, **world: Any) -> Evacuate:
    """What is asked of its evacuation to any cell; `may_stay`: to its own first."""
    await wire_far_hosts(small.engine)
    asked = await evacuating(small, **world)
    away = () if may_stay else (host_id("host3"), host_id("host4"))
    return msgspec.structs.replace(asked, far=away, cross_cell=True)


def _forced_down(tx: Tx) -> None:
    cell_hosts.report(tx, Host(0, HostId("provider-1"), "", DEAD, DEAD, CELL), 1)
    cell_hosts.set_forced_down(tx, DEAD, True, 2, "operator-1")


async def evacuating(small: SmallRegion, *, stopped: bool = False, host: str | None = None, **world: Any) -> Evacuate:
    """What is asked of an evacuation of that server."""
    await evacuable(small, **world)
    server = await recorded(small)
    flavor, disk = server.flavor, 0 if server.volume_backed else server.flavor.disk_gib
    return Evacuate(
        server=msgspec.structs.replace(server),
        seq=2,
        migration=MOVE,
        fence=FenceProof(DEAD, FencedBy.OPERATOR, 2, "operator-1"),
        stopped=stopped,
        host=host,
        needs=needs_of(vcpus=flavor.vcpus, memory_mb=flavor.ram_mib, disk_gb=disk),
        request_id="req-evacuate",
        user="user-1",
        by_project=PROJECT,
        across=bool(world.get("across")),
    )
