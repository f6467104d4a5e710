"""For fleets too large to name all hosts, the reason of each refused host is stored, and shown for the host that is asked about (N2)."""

import pytest
from tests.cloud.conftest import Start

from moorage.cli.explain import _describe
from moorage.model.ids import CellId
from moorage.model.resources import Inventory
from moorage.placement.inventory import HostInventory, report_host
from moorage.sql import Tx

FLEET = 1_200


@pytest.mark.slow
async def test_an_administrator_asks_why_one_host_was_refused(start: Start) -> None:
    async with start() as running:
        admin, region = running.admin, running.cloud.region

        def fleet(tx: Tx) -> None:
            for number in range(FLEET):
                amounts = {"VCPU": Inventory(1), "MEMORY_MB": Inventory(1 + number % 7), "DISK_GB": Inventory(1)}
                report_host(
                    tx, HostInventory(host=f"small-{number:04}", cell=CellId("cell1"), inventories=amounts, zone="far")
                )

        await region.databases.region.write(fleet)
        await region.engine.catch_up()
        server = await admin.boot("nowhere", networks="none", availability_zone="far")
        found = await admin.settled(server)
        assert found["status"] == "ERROR"
        path = f"/ext/servers/{server}/explain"
        answer = (await admin.compute("GET", path, host="small-1199")).json()["explain"]
        ended = answer["operations"][0]["ended"]
        assert (ended["left_out"], ended["considered"]) == (0, ended["coded"])
        assert ended["considered"] > FLEET
        assert ended["asked_about"] == {"host": "small-1199", "reason": "not enough memory"}
        assert any("small-1199: not enough memory" in line for line in _describe(answer))
        plain = (await admin.compute("GET", path)).json()["explain"]
        assert "asked_about" not in plain["operations"][0]["ended"]
        await admin.gone(server)
