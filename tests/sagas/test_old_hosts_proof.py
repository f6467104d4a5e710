"""Boot and delete, broken in every way, while a gate is closed: hosts that make and bind ports, and a conductor that cannot."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.proof_parameters import matrix_part, quick_part

from moorage.model.errors import HostFailed
from moorage.model.ids import OperationId
from moorage.model.network import mint_mac
from moorage.operations.boot.boot import Boot
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.legacy_hosts import OldRegion
from moorage_testing.proof_parts import ProofPart
from moorage_testing.region_fixture import SERVER, USERS_PORT, a_boot, a_server
from moorage_testing.region_moved import recorded, wired_apart
from moorage_testing.region_network import SEGMENTS
from moorage_testing.region_shelved import shelved, unshelving
from moorage_testing.saga_proof import PROVED_OPERATION, prove

BOOTED = OperationId("booted")
BOOT, DELETE = SAGAS["boot/1"], SAGAS["delete/4"]
WORLDS = {
    "all of level 1": ((1, 1, 1), True),
    "every level": ((1, 2, 3), True),
    "level 2 and 3": ((2, 3, 2), True),
    "all of level 1, no credentials": ((1, 1, 1), False),
    "level 1 and 2, no credentials": ((2, 1, 2), False),
}
WORST = "level 1 and 2, no credentials"


def worlds(*soon: str) -> list[Any]:
    """All of them, these in every run and the others in `make soak`."""
    return [pytest.param(name, marks=() if name in soon else pytest.mark.soak) for name in sorted(WORLDS)]


@pytest.fixture
async def old() -> AsyncIterator[OldRegion]:
    region = await OldRegion.open()
    assert isinstance(region, OldRegion)
    yield region
    await region.close()


async def world(old: OldRegion, name: str) -> OldRegion:
    levels, credentials = WORLDS[name]
    return await old.of(dict(zip(("host1", "host2", "host3"), levels, strict=True)), credentials=credentials)


def boot_in(old: OldRegion, operation: OperationId) -> Boot:
    gates = old.gates()
    return msgspec.structs.replace(a_boot(operation), gates=gates, min_level=gates.min_level)


async def booted(old: OldRegion) -> OldRegion:
    await old.fresh(a_server(), BOOTED)
    await execute(BOOT, BOOTED, boot_in(old, BOOTED), old.context, MemoryJournal(first_lines(BOOT), old.transact))
    await old.hand_to(PROVED_OPERATION)
    return old


@matrix_part
@pytest.mark.parametrize("name", worlds("every level", WORST))
async def test_a_boot_is_proved(name: str, part: ProofPart, old: OldRegion) -> None:
    await world(old, name)
    await prove(BOOT, boot_in(old, PROVED_OPERATION), lambda: old.fresh(a_server(), PROVED_OPERATION), part)


@matrix_part
@pytest.mark.parametrize("name", worlds(WORST))
async def test_a_delete_is_proved(name: str, part: ProofPart, old: OldRegion) -> None:
    await world(old, name)
    asked = Delete(a_server(operation=PROVED_OPERATION), seq=2, request_id="req-delete", gates=old.gates())
    await prove(DELETE, asked, lambda: booted(old), part)


async def offloaded(old: OldRegion) -> OldRegion:
    """It was on a host of level 3; the other host of its cell is of level 2."""
    await old.of({"host1": 3, "host2": 2, "host3": 2})
    await shelved(old, offload=True, guarantees=True)
    return old


def to_the_other(old: OldRegion) -> Unshelve:
    world = old.engine.world()
    left = world.host_ids[world.slots_by_name["host1"]]
    return msgspec.structs.replace(unshelving(), gates=old.gates(), different_host=(left,))


async def test_an_agent_of_level_2_binds_the_ports_of_an_unshelve(old: OldRegion) -> None:
    """With the provider that was claimed on its host (S1.5), and the record says what it bound."""
    await offloaded(old)
    saga = SAGAS["unshelve/1"]
    await execute(
        saga, PROVED_OPERATION, to_the_other(old), old.context, MemoryJournal(first_lines(saga), old.transact)
    )
    ((host, order),) = old.hosts.ordered
    assert (host, order.how) == ("host3", "bind")
    assert {each.id for each in order.ports} == {each.id for each in old.network.ports.values() if each.host == host}
    assert order.profiles
    bound = {each.id: each.profile for each in old.network.ports.values() if each.host == host}
    record = await recorded(old)
    assert {nic.port for nic in record.nics} == set(bound)
    assert any("allocation" in profile for profile in bound.values())


async def test_an_agent_of_level_2_binds_no_kept_address_of_another_segment(
    old: OldRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows of no address that is kept: so the one that an earlier host gave is taken off before it binds."""
    await old.of({"host1": 3, "host2": 2, "host3": 2})
    await shelved(old, offload=True, routed=True, across=True)
    had = {port.id: port.fixed_ips for port in old.network.ports.values()}
    saga, asked = SAGAS["unshelve/2"], msgspec.structs.replace(unshelving(across=True), gates=old.gates())

    async def fails(to: Any, command_context: Any, guest: Any) -> Any:
        assert to.host in {"host1", "host4"}
        await wired_apart(old, "host3")
        raise HostFailed("the host failed", code="guest_failed")

    monkeypatch.setattr(old.hosts, "start_guest", fails)
    await execute(saga, PROVED_OPERATION, asked, old.context, MemoryJournal(first_lines(saga), old.transact))
    ((host, order),) = old.hosts.ordered
    assert (host, order.how) == ("host3", "bind")
    assert {port.id: port.fixed_ips for port in old.network.ports.values()} == had
    assert {nic.segment for nic in (await recorded(old)).nics} == {None, next(iter(SEGMENTS))}


@quick_part
async def test_an_unshelve_is_proved(part: ProofPart, old: OldRegion) -> None:
    """To hosts of level 3 and of level 2, which binds the ports that are there (S1.4, S1.5)."""
    await offloaded(old)
    asked = msgspec.structs.replace(unshelving(), gates=old.gates())
    await prove(SAGAS["unshelve/1"], asked, lambda: offloaded(old), part)


@pytest.mark.parametrize("name", sorted(WORLDS))
async def test_the_next_host_takes_the_ports_of_a_failed_build(name: str, old: OldRegion) -> None:
    await world(old, name)
    await old.fresh(a_server(), BOOTED)
    old.hosts.refuse_builds = dict.fromkeys(old.levels, 1)
    boot = boot_in(old, BOOTED)
    log = MemoryJournal(first_lines(BOOT), old.transact)
    try:
        await execute(BOOT, BOOTED, boot, old.context, log)
    except Unwound:  # every host failed once, and there are as many attempts as hosts
        assert all(level < 3 for level in old.levels.values())
    mac = mint_mac(SERVER, 0)
    assert old.network.made == {mac: 1}
    orders = [order for _, order in old.hosts.ordered]
    for later in orders[1:]:
        assert [port.mac for port in later.ports] == [mac, "fa:16:3e:00:00:01"], "the ports came back with the failure"
        assert [port.ours for port in later.ports] == [True, False]


@pytest.mark.parametrize("name", sorted(WORLDS))
async def test_the_record_says_which_ports_are_ours(name: str, old: OldRegion) -> None:
    await world(old, name)
    await booted(old)
    bound = {port.id: port.ours for port in old.network.ports.values() if port.host and port.device_id == SERVER}
    assert bound == {mint_mac(SERVER, 0): True, USERS_PORT: False}
    asked = Delete(a_server(operation=PROVED_OPERATION), seq=2, request_id="req-delete", gates=old.gates())
    await execute(DELETE, PROVED_OPERATION, asked, old.context, MemoryJournal(first_lines(DELETE), old.transact))
    assert mint_mac(SERVER, 0) not in old.network.ports
    assert USERS_PORT in old.network.ports
    assert not [port for port in old.network.ports.values() if port.device_id or port.host]


@pytest.mark.soak
@matrix_part
@pytest.mark.parametrize("name", ["all of level 1", "level 2 and 3"])
async def test_a_boot_whose_hosts_are_upgraded_before_they_build_is_proved(
    name: str, part: ProofPart, old: OldRegion
) -> None:
    await world(old, name)
    old.upgraded = True
    await prove(BOOT, boot_in(old, PROVED_OPERATION), lambda: old.fresh(a_server(), PROVED_OPERATION), part)


@pytest.mark.parametrize("name", ["all of level 1", "level 2 and 3"])
async def test_a_host_that_is_upgraded_before_it_builds_costs_no_attempt(name: str, old: OldRegion) -> None:
    await world(old, name)
    old.upgraded = True
    await booted(old)
    assert old.network.made == {mint_mac(SERVER, 0): 1}
    hosts = {port.host for port in old.network.ports.values() if port.device_id == SERVER}
    assert hosts == {host for host, _ in old.hosts.guests}
    assert len(old.hosts.turns) == 1, "one host was asked"
