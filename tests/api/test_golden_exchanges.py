"""The change of every microversion, as clients see it: the same calls just below it and at it (golden files, `make bless`)."""

import json
import os
import pkgutil
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.api_exchanges import EXCHANGES, PROVED_ELSEWHERE, Ask

from moorage.api import version_changes
from moorage.model.host import Host
from moorage.model.ids import CellId
from moorage.model.resources import Inventory
from moorage.placement import inventory
from moorage.sql import Database
from moorage.store.cell import hosts as cell_hosts
from moorage_testing.compute_app import ADMIN, ApiClient, cells_in, compute_api

GOLDEN = Path(__file__).parents[1] / "golden" / "exchanges"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")


@pytest.fixture
async def clouds(tmp_path: Path) -> AsyncIterator[list[ApiClient]]:
    """Two equal clouds, so that what one version wrote is not there for the other."""
    async with (
        cells_in(tmp_path / "older", "cell1") as first,
        cells_in(tmp_path / "newer", "cell1") as second,
        compute_api(tmp_path / "older", cells=first) as older,
        compute_api(tmp_path / "newer", cells=second) as newer,
    ):
        await furnish(older, first)
        await furnish(newer, second)
        yield [older, newer]


async def furnish(cloud: ApiClient, cells: dict[str, Database]) -> None:
    """A host, a flavor, a key, a group and an aggregate."""
    report = inventory.HostInventory(host="host1", cell=CellId("cell1"), inventories={"VCPU": Inventory(total=8)})
    provider = await cloud.context.region.write(lambda tx: inventory.report_host(tx, report))
    host = Host(0, provider, "", "host1", "host1", CellId("cell1"), cpu_info={"arch": "x86_64"})
    now = int(cloud.context.clock.now() * 1e6)
    await cells["cell1"].write(lambda tx: cell_hosts.report(tx, host, now))
    key = {"name": "known", "public_key": EXCHANGES[2, 2][0][2]["keypair"]["public_key"]}
    for path, body in (
        ("/flavors", {"flavor": {"name": "small", "id": "1", "ram": 512, "vcpus": 1, "disk": 1}}),
        ("/os-keypairs", {"keypair": key}),
        ("/os-server-groups", {"server_group": {"name": "known", "policies": ["affinity"]}}),
        ("/os-aggregates", {"aggregate": {"name": "known"}}),
    ):
        made = await cloud.ask("POST", path, body)
        assert made.status_code < 300, made.text


async def exchange(cloud: ApiClient, ask: Ask, at: str) -> dict[str, Any]:
    method, path, body = ask
    answer = await cloud.ask(method, path, body, at=at, by=ADMIN)
    text = MOMENT.sub("<moment>", UUID.sub("<uuid>", answer.text))
    text = re.sub(r"-----BEGIN.*?(?=\")|ssh-rsa [^\"]*|([0-9a-f]{2}:){15}[0-9a-f]{2}", "<key>", text)
    text = re.sub(r'"id":\d{5,}', '"id":"<number>"', text)
    return {"at": at, "status": answer.status_code, "body": json.loads(text) if text else None}


def version_name(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:03}"


@pytest.mark.parametrize("version", sorted(EXCHANGES), ids=version_name)
async def test_golden_exchange(clouds: list[ApiClient], version: tuple[int, int]) -> None:
    older, newer = clouds
    seen = [
        {
            "ask": {"method": ask[0], "path": ask[1], "body": ask[2]},
            "older": await exchange(older, ask, f"2.{version[1] - 1}"),
            "newer": await exchange(newer, ask, f"2.{version[1]}"),
        }
        for ask in EXCHANGES[version]
    ]
    assert any(each["older"] | {"at": ""} != each["newer"] | {"at": ""} for each in seen), (
        "nothing here shows the change"
    )
    file = GOLDEN / f"{version_name(version)}.json"
    if os.environ.get("MOORAGE_BLESS"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    assert seen == json.loads(file.read_text())


def test_every_version_change_has_an_exchange() -> None:
    """Changes to servers stand in files of their own, and are proved where servers are."""
    names = [
        found.name for found in pkgutil.iter_modules(version_changes.__path__) if not found.name.endswith("_servers")
    ]
    versions = {(2, int(name.removeprefix("v2_"))) for name in names}
    assert sorted(versions - EXCHANGES.keys() - PROVED_ELSEWHERE.keys()) == []


def test_every_proof_elsewhere_exists() -> None:
    root = Path(__file__).parents[2]
    for named in PROVED_ELSEWHERE.values():
        file, test = named.split("::")
        assert f"def {test}(" in (root / file).read_text(), named
