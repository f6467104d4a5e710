"""Real guests that a real Neutron wires: its Open vSwitch agents on two hosts with switches in userspace, its DHCP agent, its security groups."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.helpers.neutron_guests import Guests
from tests.helpers.neutron_ovs_site import NeutronSite, a_site, lacks

pytestmark = [pytest.mark.hypervisor, pytest.mark.skipif(bool(lacks()), reason=lacks())]

ASKS = """#!/bin/sh
( n=0; while sleep 1; do n=$((n+1)); ping -c1 -W2 {address} >/dev/null 2>&1 && echo "GUEST: answer $n" || echo "GUEST: silence $n"; done >/dev/console ) &
( n=0; while sleep 1; do n=$((n+1)); timeout 3 wget -q -O- http://{address}/ >/dev/null 2>&1 && echo "GUEST: page $n" || echo "GUEST: no page $n"; done >/dev/console ) &
"""
WITHIN_S = "vif_plugging_timeout = 12"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NeutronSite]:
    if not os.environ.get("MOORAGE_HYPERVISOR"):
        pytest.skip("real guests are for `make test-hypervisor`")
    with a_site(tmp_path_factory.mktemp("neutron")) as made:
        yield made


@pytest.fixture
async def guests(site: NeutronSite) -> AsyncIterator[Guests]:
    """Whoever is there at the end is deleted, and then nothing is left of any."""
    async with Guests.of(site) as made:
        yield made


def asking(address: str) -> dict[str, Any]:
    """What a server is booted with that asks another again and again: a ping and a page each second."""
    return {"user_data": base64.b64encode(ASKS.format(address=address).encode()).decode()}


async def test_guests_reach_one_another_by_neutrons_wires(site: NeutronSite, guests: Guests) -> None:
    assert site.trial.config.compute.vif_plugging_timeout == 300, "as it comes"
    one = await guests.boot("one", "host1")
    near, far = await asyncio.gather(
        guests.boot("near", "host1", **asking(one.address)), guests.boot("far", "host2", **asking(one.address))
    )
    for each in (one, near, far):
        port = await guests.port(each)
        assert (port["status"], port["binding:vif_type"]) == ("ACTIVE", "ovs")
        await guests.says(each, f"GUEST: dhcp eth0 {each.address}/24")
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer", "GUEST: page")

    assert site.events_taken() >= 3, "the network's own word is what the servers waited for"

    # A group that lets nothing in, then pings.
    group = await guests.group("closed")
    await guests.put_in(one, [group])
    for each in (near, far):
        await guests.says_more(each, "GUEST: silence", "GUEST: no page")
    await guests.let_in(group, "icmp")
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer", "GUEST: no page")
    await guests.let_in(group, "tcp")
    for each in (near, far):
        await guests.says_more(each, "GUEST: page")

    # It goes to the other host while both ask it.
    await guests.act(one, "ACTIVE", **{"os-migrateLive": {"host": "host2", "block_migration": "auto"}})
    await guests.is_wired(one, "host2", left="host1")
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer", "GUEST: page")
    assert (await guests.console(one)).count("GUEST: kernel") == 1

    # A larger one, which waits for its owner's word there; and back.
    await guests.act(one, "VERIFY_RESIZE", resize={"flavorRef": "84"})
    assert await guests.host(one) == "host1"
    await guests.is_up(one, "host1")
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer", "GUEST: page")
    await guests.act(one, "ACTIVE", revertResize=None)
    await guests.is_wired(one, "host2", left="host1")
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer", "GUEST: page")

    # Off and on: the port stays plugged meanwhile.
    await guests.act(one, "SHUTOFF", **{"os-stop": None})
    assert (await guests.port(one))["id"] in guests.plugged("host2")
    await guests.act(one, "ACTIVE", **{"os-start": None})
    for each in (near, far):
        await guests.says_more(each, "GUEST: answer")


async def test_a_port_not_wired_on_one_host_is_wired_on_the_next(site: NeutronSite, guests: Guests) -> None:
    """The agent of the best host has just died: Neutron binds there still."""
    await asyncio.to_thread(site.with_compute, WITHIN_S)
    try:
        await guests.boot("filler", "host2", networks="none")  # so that the other one is better
        await asyncio.to_thread(site.hosts["host1"].stop_agent, "neutron-openvswitch-agent")
        port = await guests.new_port()
        server = await guests.boot("waits", port=port)
        assert server.host == "host2"
        assert (await guests.port(server))["id"] == port
        await guests.is_wired(server, "host2", left="host1")

        own = await guests.new_port()
        failed = await guests.fails("nowhere", "host1", port=own)
        assert "the network was not plugged in time" in failed["fault"]["message"]
        await guests.is_free(own, "host1")
    finally:
        await asyncio.to_thread(site.without_compute, WITHIN_S)
        await asyncio.to_thread(site.hosts["host1"].start_agent)


async def test_a_host_that_filters_with_iptables(site: NeutronSite, guests: Guests) -> None:
    """Its ports are plugged by the way of a Linux bridge; a guest goes there from a host that has none, and back."""
    await site.filters_with(guests.admin, "host2", "iptables_hybrid")
    try:
        one = await guests.boot("one", "host1")
        far = await guests.boot("far", "host2", **asking(one.address))
        port = await guests.port(far)
        assert (port["status"], port["binding:vif_details"]["ovs_hybrid_plug"]) == ("ACTIVE", True)
        await guests.says_more(far, "GUEST: answer", "GUEST: page")
        group = await guests.group("closed")
        await guests.put_in(one, [group])
        for host, left in (("host2", "host1"), ("host1", "host2")):
            await guests.act(one, "ACTIVE", **{"os-migrateLive": {"host": host, "block_migration": "auto"}})
            await guests.is_wired(one, host, left=left)
            await guests.says_more(far, "GUEST: silence", "GUEST: no page")
        await guests.let_in(group, "icmp")
        await guests.says_more(far, "GUEST: answer", "GUEST: no page")
    finally:
        await guests.gone()  # an agent with another firewall leaves flows of the ports that it finds
        await site.filters_with(guests.admin, "host2", "openvswitch")
