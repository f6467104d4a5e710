"""A server with a guaranteed port moves while hosts of levels 1 and 2 are there, or a pin holds the fleet back (S1.5, S1.11, S1.12).

Where all that takes part understands it, allocation and binding follow, at any microversion (S1.2); where an agent or the pin is too old the
move is refused before anything is touched.
"""

from typing import Any, Literal

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_evacuate import force
from tests.cloud.test_rolling_upgrade import Upgrading
from tests.cloud.test_shelve import act, failure, guests, until
from tests.helpers.guaranteed_ports import (
    EGR,
    IGR,
    KBPS,
    KPPS,
    network_on,
    placement,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)
from tests.helpers.resized_cloud import assert_nothing_to_repair, host_of, migrations

from moorage.main.config import Cell, Compute, Hosts, UpgradeLevels
from moorage_testing.waiting import until as soon

Level = Literal[1, 2, 3]
GUARANTEED = KBPS // 2
MIGRATE: dict[str, Any] = {"migrate": None}
LIVE: dict[str, Any] = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
EVACUATE: dict[str, Any] = {"evacuate": {}}
RESIZED = "VERIFY_RESIZE"
FIRST, NOW = "2.1", "2.104"
LIVE_AT_FIRST: dict[str, Any] = {"os-migrateLive": {"host": None, "block_migration": True, "disk_over_commit": False}}
EVACUATE_AT_FIRST: dict[str, Any] = {"evacuate": {"onSharedStorage": False}}
TOO_OLD = "before all of the hosts concerned are upgraded"


def fleet(*levels: Level, pin: Literal["auto", 1, 2] = "auto") -> dict[str, Any]:
    hosts = Hosts(
        count=len(levels),
        levels=levels,
        physical_networks=(("physnet1",),),
        bandwidth_kbps=KBPS,
        packet_rate_kpps=KPPS,
        beat_s=0.2,
    )
    pinned = UpgradeLevels(compute=pin)
    return {
        "hosts": hosts,
        "cells": (Cell("cell1"),),
        "compute": Compute(host_silence_s=10.0),
        "upgrade_levels": pinned,
    }


class Guaranteed:
    """A server with one guaranteed port, in a fleet of several levels."""

    def __init__(self, at: Upgrading, id: str, port: str, bridges: dict[str, str]) -> None:
        self.at, self.running, self.admin = at, at.running, at.running.admin
        self.id, self.port, self.bridges = id, port, bridges

    @classmethod
    async def on(cls, running: Running, host: str) -> "Guaranteed":
        admin, found = running.admin, await providers(running.admin)
        bridges = {each: found[f"{each}:Open vSwitch agent:br-physnet1"] for each in running.cloud.fleet.drivers}
        port = await port_on(admin, await network_on(admin, "physnet1"), await policy_of(admin, kbps=GUARANTEED))
        server = await admin.active("a", networks=[{"port": port["id"]}], availability_zone=f"nova:{host}")
        return cls(await Upgrading.of(running), server["id"], port["id"], bridges)

    async def is_on(self, host: str, held_by: str = "") -> None:
        """S1.17: allocation, binding and what is in use say the same. `held_by`: the host that a move holds its part of."""
        shown = await show_port(self.admin, self.port)
        assert (shown["binding:host_id"], guests(self.running, self.id)) == (
            host,
            sorted({host, held_by} - {""}),
        )
        assert list(shown["binding:profile"]["allocation"].values()) == [self.bridges[host]]
        claim = (await placement(self.admin, f"/allocations/{self.id}"))["allocations"]
        assert {each for each in claim if each in self.bridges.values()} == {self.bridges[host]}
        assert claim[self.bridges[host]]["resources"] == {EGR: GUARANTEED}
        for name, bridge in self.bridges.items():
            wanted = GUARANTEED if name in {host, held_by} else 0
            assert await used(self.admin, bridge) == {EGR: wanted, IGR: 0}, name

    async def moves(self, action: dict[str, Any], status: str = "ACTIVE", at: str = FIRST, code: int = 202) -> str:
        """The host that it is on then."""
        reply = await act(self.running, self.id, action, at=at)
        assert reply.status_code == code, reply.text
        seen = await self.admin.settled(self.id)
        await self.running.wait_until_unlocked(self.id)
        assert seen["status"] == status, await failure(self.running, self.id)
        return host_of(seen)

    async def migrated(self) -> str:
        left = host_of(await self.admin.server(self.id) or {})
        there = await self.moves(MIGRATE, RESIZED)
        await self.is_on(there, held_by=left)
        assert (await act(self.running, self.id, {"confirmResize": None}, at=FIRST)).status_code == 204
        await until(lambda: self.admin.settled(self.id), lambda seen: seen["status"] == "ACTIVE")
        await self.running.wait_until_unlocked(self.id)
        await self.is_on(there)
        return there

    async def live_migrated(self) -> str:
        before = len(await migrations(self.running, self.id))
        assert (await act(self.running, self.id, LIVE_AT_FIRST, at=FIRST)).status_code == 202
        moves = await until(
            lambda: migrations(self.running, self.id),
            lambda rows: len(rows) > before and rows[0]["status"] in {"completed", "error", "failed"},
        )
        assert moves[0]["status"] == "completed", await failure(self.running, self.id)
        await self.running.wait_until_unlocked(self.id)
        there = host_of(await self.admin.settled(self.id))
        await self.is_on(there)
        return there

    async def shelved_and_back(self, **where: Any) -> str:
        await self.moves({"shelve": None}, "SHELVED_OFFLOADED")
        assert (await show_port(self.admin, self.port))["binding:host_id"] == ""
        for bridge in self.bridges.values():
            assert await used(self.admin, bridge) == {EGR: 0, IGR: 0}
        there = await self.moves({"unshelve": where or None}, at=NOW if where else FIRST)
        await self.is_on(there)
        return there

    async def refused(self, action: dict[str, Any], why: str = TOO_OLD) -> None:
        """Before anything is touched: everything is as it was, the move's record says that it failed, and the action why."""
        evacuation = "evacuate" in action
        before, was, bound = await self.everything(), guests(self.running, self.id), self.at.writes_by_conductor()
        foreseen = await self.running.admin.compute("POST", f"/ext/dry-run/servers/{self.id}/action", action)
        assert why in foreseen.json()["dry_run"]["servers"][0]["fault"]
        reply = await act(self.running, self.id, action, at="2.94" if evacuation else "2.104")
        assert reply.status_code == (200 if evacuation else 202), reply.text
        seen = await self.admin.settled(self.id)
        await self.running.wait_until_unlocked(self.id)
        assert (seen["status"], guests(self.running, self.id)) == ("ACTIVE", was)
        assert await self.everything() == before
        assert self.at.writes_by_conductor() == bound, "the network service was told nothing"
        assert (await migrations(self.running, self.id))[0]["status"] == "error"
        assert why in str(await failure(self.running, self.id))

    async def everything(self) -> Any:
        server = await self.admin.server(self.id) or {}
        claim = (await placement(self.admin, f"/allocations/{self.id}"))["allocations"]
        in_use = [await used(self.admin, each) for each in self.bridges.values()]
        amounts = {provider: row["resources"] for provider, row in claim.items()}
        return host_of(server), await show_port(self.admin, self.port), amounts, in_use

    async def dies(self, host: str) -> None:
        """Its agent ends, and an operator says that it is off."""
        await self.running.cloud.fleet.agents[host].stop()
        caller = self.running.cloud.region.context.hosts
        await soon(lambda: caller.is_silent(host))
        await force(self.running, host, True)

    async def gone(self) -> None:
        await assert_nothing_to_repair(self.running)
        await self.admin.gone(self.id)
        for bridge in self.bridges.values():
            assert await used(self.admin, bridge) == {EGR: 0, IGR: 0}
        await self.admin.network("DELETE", f"/ports/{self.port}")
        await self.at.close()


async def test_moves_use_only_hosts_that_support_them(start: Start) -> None:
    """host1 and host2 are of level 3, host3 is of level 2 and host4 of level 1."""
    async with start(**fleet(3, 3, 2, 1)) as running:
        one = await Guaranteed.on(running, "host1")
        await one.is_on("host1")
        assert await one.migrated() == "host2", "the only other one that is new enough (S1.11)"
        assert await one.live_migrated() == "host1"
        flavor = await running.admin.id_of("flavor", "m1.micro")
        assert await one.moves({"resize": {"flavorRef": flavor}}, RESIZED) == "host2"
        await one.is_on("host2", held_by="host1")
        assert await one.moves({"revertResize": None}) == "host1"
        await one.is_on("host1")
        for older in ("host3", "host4"):
            await one.refused({"migrate": {"host": older}}, "No valid host was found")
        assert await one.shelved_and_back() != "host4", "ports that are there already are nothing for level 1"
        before = one.at.writes_by_hosts()
        assert await one.shelved_and_back(host="host3", availability_zone="nova") == "host3"
        bound = one.at.writes_by_hosts().get("PUT ports", 0) - before.get("PUT ports", 0)
        assert bound == 1, "a host of level 2 binds, with the provider that was claimed (S1.5)"

        for move in (MIGRATE, LIVE):
            await one.refused(move)
        await one.dies("host3")
        await one.refused(EVACUATE)
        await one.at.set_level("host3", 3)
        await one.dies("host3")
        there = await one.moves(EVACUATE_AT_FIRST, code=200)
        assert there in {"host1", "host2"}
        await one.at.set_level("host3", 3)
        await until(lambda: migrations(running, one.id), lambda seen: seen[0]["status"] == "completed")
        await one.is_on(there)
        await force(running, "host3", False)
        await one.gone()


@pytest.mark.parametrize("pin", [1, 2])
async def test_a_pinned_version_refuses_moves_it_cannot_express(start: Start, pin: Literal[1, 2]) -> None:
    """All hosts are new, and are spoken to as if they were not: the pin is what counts (S1.12). An unshelve needs nothing of it."""
    async with start(**fleet(3, 3, pin=pin)) as running:
        one = await Guaranteed.on(running, "host1")
        for move in (MIGRATE, LIVE):
            await one.refused(move)
        await one.dies("host1")
        await one.refused(EVACUATE)
        await one.at.set_level("host1", 3)
        await force(running, "host1", False)
        assert await one.shelved_and_back() in {"host1", "host2"}
        assert one.at.writes_by_hosts() == {}
        await one.gone()
