"""Three cells as processes on PostgreSQL with NATS beside a real Neutron, Glance and Keystone: a server with a guaranteed port is resized to
another cell and back (S4.31).
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.helpers.real_neutron_guarantees import KBPS, KPPS, Site
from tests.helpers.real_services_cloud import ServicesClient, until
from tests.real.test_moves import HOSTS, Moved
from tests.real.test_reporting import assert_reported, report, state

from moorage.main.hosts import planned_hosts
from moorage.main.local_cluster.cluster import RealServices, TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.real_services.stack import Stack

pytestmark = [
    pytest.mark.real,
    pytest.mark.postgres,
    pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="needs PostgreSQL and NATS"),
]

WIRES = ("physnet1", "physnet4")


def neighbours(stack: Stack, policy: Path) -> RealServices:
    """What a set is told of the real ones; nothing plugs what guests of simulated hosts have."""
    login, site = stack.logins["moorage"], stack.site
    policy.write_text('"compute:servers:resize:cross_cell": "role:admin"\n')
    return RealServices(
        tables=f'[identity]\nurl = "{stack.identity_url}"\n\n[image]\nurl = "{stack.image_url}"\n\n'
        f'[network]\nurl = "{stack.network_url}"\nreports = true\n\n[compute]\nvif_plugging_timeout = 0\n\n'
        f'[api]\npolicy_file = "{policy}"\n\n',
        service_user=f'user = "{login.user}"\npassword = "{login.password}"\nproject = "{login.project}"',
        ports={"compute": site.our_compute_port, "placement": site.our_placement_port},
        token=lambda: stack.token("admin"),
    )


@pytest.fixture
async def trial(real_stack: Stack, tmp_path: Path) -> AsyncIterator[TrialSet]:
    """A host in each of three cells, all wired to physnet4; one conductor and one API process."""
    beside = neighbours(real_stack, tmp_path / "policy.yaml")
    found = TrialSet(
        tmp_path / "set", hosts=len(HOSTS), apis=1, conductors=1, cells=3, wires=WIRES, durability="none", beside=beside
    )
    try:
        await asyncio.to_thread(found.start)
        yield found
    finally:
        await asyncio.to_thread(found.stop)


@pytest.fixture
async def site(real_stack: Stack, trial: TrialSet) -> AsyncIterator[Site]:
    admin, alice = (ServicesClient(real_stack, trial.config, name) for name in ("admin", "alice"))
    for host in HOSTS:
        await assert_reported(admin, state(host, *WIRES, kbps=KBPS, kpps=KPPS))
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    made = Site(admin, alice, await alice.upload("tiny"), flavor)
    try:
        yield made
    finally:
        await made.cleared()
        await report(admin, state("host2", "physnet2"))  # as other tests have it
        for each in (admin, alice):
            await each.close()


class Crossed:
    """A server that goes from cell to cell, and what the databases have of it."""

    def __init__(self, trial: TrialSet, moved: Moved, images: set[str]) -> None:
        self.trial, self.moved, self.images = trial, moved, images
        self.cells = {plan.host: str(plan.cell) for plan in planned_hosts(trial.config)}

    async def rows(self, database: str, question: str) -> list[Any]:
        connection = await asyncpg.connect(database)
        try:
            return [row[0] for row in await connection.fetch(question, self.moved.server)]
        finally:
            await connection.close()

    async def records(self) -> dict[str, list[bool]]:
        """Cell → whether its record of the server is sealed, of those that have one."""
        found = {}
        for cell in self.trial.config.cells:
            rows = await self.rows(cell.database, "SELECT hidden FROM servers WHERE id = $1")
            if rows:
                found[cell.name] = rows
        return found

    async def waits(self, there: str, left: str) -> None:
        """In VERIFY_RESIZE: two records of which one is shown, once, and no image is left."""
        await self.moved.is_on(there, left=left)
        assert await self.records() == {self.cells[there]: [False], self.cells[left]: [True]}
        assert await self.rows(
            self.trial.config.region.database, "SELECT cell FROM hidden_records WHERE server = $1 AND ended_at IS NULL"
        ) == [self.cells[left]]
        await self.is_shown_once()

    async def is_shown_once(self) -> None:
        site = self.moved.site
        for path in ("/servers?all_tenants=1", "/servers/detail?all_tenants=1"):
            listed = (await site.admin("compute", "GET", path))["servers"]
            assert [each["id"] for each in listed] == [self.moved.server]
        assert {each["id"] for each in (await site.admin("image", "GET", "/images"))["images"]} == self.images

    async def rests(self, host: str) -> None:
        """One record, nothing hidden, one binding, one claim."""
        await until(self.records, lambda seen: seen == {self.cells[host]: [False]})
        await self.moved.is_on(host)
        await self.is_shown_once()


async def test_a_server_with_a_guaranteed_port_is_resized_to_another_cell_and_back(site: Site, trial: TrialSet) -> None:
    """Reverted, then confirmed, then back where it came from, whose record of before is in nobody's way."""
    images = {each["id"] for each in (await site.admin("image", "GET", "/images"))["images"]}
    moved = await Moved.booted(site)
    crossed = Crossed(trial, moved, images)
    assert sorted(crossed.cells.values()) == ["cell1", "cell2", "cell3"]
    here, other = await moved.host(), await moved.other_flavor()
    await moved.is_on(here)

    there = await moved.act({"resize": {"flavorRef": other}}, "VERIFY_RESIZE")
    assert there != here, "every other host is in another cell"
    await crossed.waits(there, here)
    assert await moved.act({"revertResize": None}) == here
    await crossed.rests(here)

    there = await moved.act({"resize": {"flavorRef": other}}, "VERIFY_RESIZE")
    await crossed.waits(there, here)
    await moved.confirmed(there)
    await crossed.rests(there)

    assert await moved.act({"migrate": {"host": here}}, "VERIFY_RESIZE") == here
    await crossed.waits(here, there)
    await moved.confirmed(here)
    await crossed.rests(here)

    found = (await site.admin("compute", "GET", f"/servers/{moved.server}/os-instance-actions"))["instanceActions"]
    assert [each["action"] for each in found] == [
        "confirmResize", "migrate", "confirmResize", "resize", "revertResize", "resize", "create"
    ]  # fmt: skip
    audit = (await site.admin("compute", "POST", "/ext/audits", {"audit": {}}))["audit"]["id"]
    done = await until(
        lambda: site.admin("compute", "GET", f"/ext/audits/{audit}"), lambda seen: seen["audit"]["ended_at"]
    )
    assert [each for each in done["audit"]["findings"] if moved.server in str(each)] == []
    await moved.gone()
