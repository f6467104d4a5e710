"""Details of decisions and waits that are easily broken unnoticed: each of these faults once passed the whole suite."""

import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import pytest

from moorage.clients.network.binding_rules import require_bound
from moorage.model.errors import HostFailed, Invalid
from moorage.model.ids import OperationId
from moorage.model.network import BindRefused, FixedIp, Port
from moorage.model.world import Ask
from moorage.operations.boot.boot import BOOT
from moorage.operations.boot.boot_checks import check_zone
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.operations.steps.vif_plugging import plugged_ports
from moorage.placement.engine import Engine
from moorage.placement.inventory import host_id, set_enabled
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Tx
from moorage.store.region import aggregates, inbox
from moorage.store.region.inbox import ExternalEvent
from moorage.store.region.placement import provider_statements
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.region.placement.tables import stamp
from moorage_testing.region_fixture import HOSTS, SERVER, SmallRegion, a_boot, a_server
from moorage_testing.region_states import attaching, booted
from moorage_testing.saga_proof import PROVED_OPERATION

OPERATION = OperationId("decided")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    await region.fresh(a_server(), OPERATION)
    yield region
    await region.close()


async def boot(small: SmallRegion) -> str:
    """The host it came to."""
    await execute(BOOT, OPERATION, a_boot(OPERATION), small.context, MemoryJournal(first_lines(BOOT), small.transact))
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert found.server.vm_state == "active"
    return str(found.server.host)


async def test_no_request_is_refused_on_stale_data(small: SmallRegion) -> None:
    """Another process filled the cloud, which was heard, and emptied it, which was not."""
    other = Engine(small.region, partial(rank, profile=Profile()), aggregates=aggregates.for_placement, every_s=3600)
    await other.start()
    everything = Ask(resources={"VCPU": 8})
    for number, choice in enumerate(other.rank(everything).best):
        owner = Owner(f"rival-{number}", "p", "u", operation="o", attempt=1)
        claim = partial(other.claim, owner=owner, host=choice, ask=everything, replace=False)
        await small.region.write(claim)
    await small.engine.catch_up()
    assert small.engine.rank(Ask(resources={"VCPU": 1})).best == ()
    await small.region.write(lambda tx: other.release(tx, "rival-1"))
    await boot(small)
    await other.close()


async def test_an_attach_that_loses_its_first_claim_takes_the_next(small: SmallRegion) -> None:
    """Whatever it lost by: the host was changed between the decision and the claim."""
    await booted(small)
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    provider, lost = found.server.provider, 0
    await small.region.write(lambda tx: provider_statements.touch(tx, str(provider), stamp(tx)))
    noted: Any = small.engine.lost

    def count(shortage: Any) -> None:
        nonlocal lost
        lost += 1
        noted(shortage)

    small.engine.lost = count  # type: ignore[method-assign]
    saga = SAGAS["attach_interface/2"]
    await execute(
        saga, PROVED_OPERATION, attaching("routed"), small.context, MemoryJournal(first_lines(saga), small.transact)
    )
    assert lost == 1
    after = await records.find(small.context, SERVER)
    assert after.server is not None
    assert len(after.server.nics) == len(found.server.nics) + 1


async def test_ports_are_made_once_however_many_hosts_are_tried(small: SmallRegion) -> None:
    made, started = 0, 0
    ensure: Any = small.network.ensure_ports
    start: Any = small.hosts.start_guest

    async def counted(*args: Any, **named: Any) -> Any:
        nonlocal made
        made += 1
        return await ensure(*args, **named)

    async def fail_once(*args: Any, **named: Any) -> Any:
        nonlocal started
        started += 1
        if started == 1:
            raise HostFailed("planted")
        return await start(*args, **named)

    small.network.ensure_ports = counted  # type: ignore[method-assign]
    small.hosts.start_guest = fail_once  # type: ignore[method-assign]
    await boot(small)
    assert (made, started) == (1, 2)


@pytest.mark.parametrize(("where", "status"), [("host1", "DOWN"), ("host1", "ACTIVE")])
async def test_an_event_of_another_host_does_not_count_as_plugged(small: SmallRegion, where: str, status: str) -> None:
    """Neither an event nor a port that is up counts for a host where the port is not bound."""
    port = Port(id="p", network="n", mac="m", device_id=SERVER, host=where, status=status)

    class Network:
        async def ports_of(self, server: str) -> tuple[Port, ...]:
            return (port,)

    context = dataclasses.replace(small.context, network=cast("Any", Network()))
    event = ExternalEvent(SERVER, "network-vif-plugged", "p", "completed", 1)
    await small.region.write(lambda tx: tx.run(inbox.inbox.insert(), [row_of(event)]))
    assert await plugged_ports(context, SERVER, {"p"}, "host2") == set()
    assert await plugged_ports(context, SERVER, {"p"}, where) == {"p"}


def row_of(event: ExternalEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_a_port_bound_without_an_address_counts_as_refused() -> None:
    """The service answers 200, and gave none."""
    port = Port(id="p", network="n", mac="m", host="host1", vif_type="ovs", index=2)
    with pytest.raises(BindRefused) as refused:
        require_bound(port, "host1")
    assert (refused.value.code, refused.value.index) == ("no_address", 2)
    addressed = Port(id="p", network="n", mac="m", host="host1", vif_type="ovs", fixed_ips=(FixedIp("10.0.0.1", "s"),))
    assert require_bound(addressed, "host1") is addressed
    without = Port(id="p", network="n", mac="m", host="host1", vif_type="ovs", ip_allocation="none")
    assert require_bound(without, "host1") is without


async def test_a_zone_whose_hosts_were_just_enabled_is_available(small: SmallRegion) -> None:
    """Another process did it: nobody is told "no" on a picture that was never told."""

    async def enable(enabled: bool) -> None:
        def all_of_them(tx: Tx) -> None:
            for host, _ in HOSTS:
                set_enabled(tx, host_id(host), enabled)

        await small.region.write(all_of_them)

    await enable(False)
    await small.engine.catch_up()
    for zone in ("nova", "nowhere"):
        with pytest.raises(Invalid, match="zone is not available"):
            await check_zone(small.context, zone)
    await enable(True)
    await check_zone(small.context, "nova")


async def test_a_boot_whose_host_is_just_disabled_goes_to_another_host(small: SmallRegion) -> None:
    """The whole saga, on a picture that was never told."""
    first = small.engine.rank(Ask(resources={"VCPU": 1}, seed=int(SERVER.replace("-", ""), 16) & 0xFFFFFFFF)).best[0]

    def disable(tx: Tx) -> None:
        for host, _ in HOSTS:
            if host == first.name:
                set_enabled(tx, host_id(host), False)

    await small.region.write(disable)
    assert await boot(small) != first.name
