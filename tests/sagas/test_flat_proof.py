"""Boot and delete without a network service, broken in every way: the addresses come from the cell of the host (S0.16)."""

from collections.abc import AsyncIterator

import pytest
from tests.helpers.proof_parameters import matrix_part

from moorage.main.flat_networks import FlatAddressBook
from moorage.model.flat_network import AddressRequest
from moorage.model.ids import OperationId
from moorage.model.network import mint_mac
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.proof_parts import ProofPart
from moorage_testing.region_fixture import CELLS, HOSTS, SERVER, a_server
from moorage_testing.region_flat import FlatRegion, a_flat_boot, pools
from moorage_testing.saga_proof import PROVED_OPERATION, prove

BOOTED = OperationId("booted")
BOOT, DELETE = SAGAS["boot/1"], SAGAS["delete/4"]


@pytest.fixture
async def flat() -> AsyncIterator[FlatRegion]:
    region = await FlatRegion.open()
    assert isinstance(region, FlatRegion)
    yield region
    await region.close()


async def booted(flat: FlatRegion) -> FlatRegion:
    await flat.fresh(a_server(), BOOTED)
    await execute(
        BOOT, BOOTED, a_flat_boot(BOOTED, flat.pools), flat.context, MemoryJournal(first_lines(BOOT), flat.transact)
    )
    await flat.hand_to(PROVED_OPERATION)
    return flat


@matrix_part
@pytest.mark.parametrize("address", [None, "10.0.1.5"])
async def test_a_boot_is_proved(flat: FlatRegion, address: str | None, part: ProofPart) -> None:
    """With an address that was asked for, whichever host has the server last: it is of one cell, and of one server."""
    flat.pools = pools(8, 8 if address is None else 0)
    asked = a_flat_boot(PROVED_OPERATION, flat.pools, address)
    await prove(BOOT, asked, lambda: flat.fresh(a_server(), PROVED_OPERATION), part)


@matrix_part
async def test_a_delete_is_proved(flat: FlatRegion, part: ProofPart) -> None:
    asked = Delete(a_server(operation=PROVED_OPERATION), seq=2, request_id="req-delete")
    await prove(DELETE, asked, lambda: booted(flat), part)


async def test_the_address_comes_from_the_hosts_cell_and_is_shown(flat: FlatRegion) -> None:
    await booted(flat)
    leases = await FlatAddressBook(flat.region).of_server(SERVER)
    assert [(lease.nic, lease.mac) for lease in leases] == [(0, mint_mac(SERVER, 0)), (1, mint_mac(SERVER, 1))]
    assert len({lease.slot for lease in leases}) == 2
    assert {lease.cell for lease in leases} == {dict(HOSTS)[leases[0].host]}


@pytest.mark.parametrize("cell", [0, 1])
async def test_only_cells_with_addresses_are_chosen(flat: FlatRegion, cell: int) -> None:
    flat.pools = pools(*(8 if at == cell else 0 for at in range(2)))
    await booted(flat)
    assert {lease.cell for lease in await FlatAddressBook(flat.region).of_server(SERVER)} == {CELLS[cell]}


async def test_a_cell_with_an_empty_pool_is_skipped(flat: FlatRegion) -> None:
    """One address for two NICs is none: nothing is kept of it, and the other cell serves the server."""
    flat.pools = pools(1, 2)
    await booted(flat)
    leases = await FlatAddressBook(flat.region).of_server(SERVER)
    assert [lease.cell for lease in leases] == [CELLS[1]] * 2


async def test_a_boot_without_any_free_address_fails_and_holds_nothing(flat: FlatRegion) -> None:
    flat.pools = pools(1, 1)
    await flat.fresh(a_server(), BOOTED)
    with pytest.raises(Unwound) as unwound:
        await execute(
            BOOT, BOOTED, a_flat_boot(BOOTED, flat.pools), flat.context, MemoryJournal(first_lines(BOOT), flat.transact)
        )
    assert unwound.value.at == "bind_ports"
    assert "no address of network flat-net is left in cell" in unwound.value.cause.private
    assert await FlatAddressBook(flat.region).every() == []


async def test_a_requested_address_is_given_once(flat: FlatRegion) -> None:
    flat.pools = pools(8, 0)
    wished = flat.pools[0].address(6)
    await flat.fresh(a_server(), BOOTED)
    boot = a_flat_boot(BOOTED, flat.pools, wished)
    await execute(BOOT, BOOTED, boot, flat.context, MemoryJournal(first_lines(BOOT), flat.transact))
    _, second = await FlatAddressBook(flat.region).of_server(SERVER)
    assert flat.pools[0].address(second.slot) == wished
    await flat.fresh(a_server(), BOOTED)
    await FlatAddressBook(flat.region).take(
        "somebody", HOSTS[0][0], [AddressRequest(0, "fa:16:3e:00:00:09", flat.pools[0], 6)]
    )
    with pytest.raises(Unwound) as unwound:
        await execute(BOOT, BOOTED, boot, flat.context, MemoryJournal(first_lines(BOOT), flat.transact))
    assert f"{wished} of network flat-net is in use" in unwound.value.cause.private
    assert {lease.server for lease in await FlatAddressBook(flat.region).every()} == {"somebody"}
