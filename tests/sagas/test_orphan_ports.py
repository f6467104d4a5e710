"""The reconciler of orphan ports: it deletes ports that Moorage made, releases ports of users, and leaves the others alone."""

import msgspec
import pytest
from tests.helpers.reconciled_region import OTHERS, small, with_a_dead_cell

from moorage.conductor.reconcilers.orphan_ports import OrphanPorts, OrphanPortsDone
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.conductor.reconcilers.purge import Tidy
from moorage.conductor.reconcilers.quota_usage import QuotaUsage
from moorage.model.ids import OperationId, ServerId
from moorage.model.network import (
    Port,
    mint_mac,
)
from moorage.operations.steps import servers as records
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_network import NETWORK

__all__ = ["small"]


STRANGER = ServerId("0d0c0b0a-0000-4000-8000-00000000beef")


def plant(small: SmallRegion, server: ServerId, index: int, *, ours: bool = True) -> str:
    """A port that names a server."""
    mac = mint_mac(server, index) if ours else "fa:16:3e:aa:aa:aa"
    small.network.ports[mac] = Port(id=mac, network=NETWORK, mac=mac, ours=ours, device_id=server, index=index)
    return mac


# --------------------------------------------------------------------------------------------------- stray ports


async def test_orphan_ports_already_fine(small: SmallRegion) -> None:
    before = await small.held(), dict(small.network.ports)
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=1, mended=0)
    assert (await small.held(), small.network.ports) == before


async def test_a_port_made_after_its_undo_is_deleted(small: SmallRegion) -> None:
    fine = dict(small.network.ports)
    plant(small, SERVER, 5)
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert small.network.ports == fine
    assert (await OrphanPorts(small.context).run()).mended == 0


async def test_a_users_orphan_port_is_released_not_deleted(small: SmallRegion) -> None:
    port = plant(small, SERVER, 5, ours=False)
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert small.network.ports[port].device_id == ""


async def test_ports_of_others_and_of_busy_servers_are_left_alone(small: SmallRegion) -> None:
    stranger = plant(small, STRANGER, 0)
    at_work = plant(small, SERVER, 5)
    await small.hand_to(OperationId("somebody"))
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=2, mended=0)
    assert {stranger, at_work} <= small.network.ports.keys()


async def test_an_unlisted_port_bound_to_its_servers_host_is_kept(
    small: SmallRegion, caplog: pytest.LogCaptureFixture
) -> None:
    """A record that was restored knows less than the guest has: the network service is the second witness (RULES §22)."""
    found = (await records.find(small.context, SERVER)).server
    assert found is not None
    port = plant(small, SERVER, 5)
    small.network.ports[port] = msgspec.structs.replace(small.network.ports[port], host=found.host or "")
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=1, amiss=(port,))
    assert port in small.network.ports
    assert f"port {port} is bound to the host of server {SERVER}" in caplog.text
    small.network.ports[port] = msgspec.structs.replace(small.network.ports[port], host="elsewhere")
    assert (await OrphanPorts(small.context).run()).mended == 1
    assert port not in small.network.ports


async def test_an_unreachable_cell_does_not_stop_reconcilers_of_other_cells(small: SmallRegion) -> None:
    dead, _ = await with_a_dead_cell(small)
    plant(small, OTHERS, 0)
    plant(small, SERVER, 5)
    assert await OrphanPorts(small.context).run() == OrphanPortsDone(looked_at=2, mended=1, waiting=(OTHERS,))

    drifted = await PortDrift(small.context).run()
    assert (drifted.looked_at, drifted.waiting) == (1, (dead,))
    usage = await QuotaUsage(small.context).run()
    assert (usage.looked_at, usage.waiting) == (0, (dead,))
    tidied = await Tidy(small.context).run()
    assert tidied.waiting == (dead,)
