"""What users pass to their guests is on no disk of the region in clear, through a server's whole life and a change of keys."""

import base64
from pathlib import Path

import pytest
from tests.cloud.conftest import Running, Start, a_config

from moorage.main import secrets_command
from moorage.main.config import Hosts
from moorage.main.databases import open_databases
from moorage.main.region_key import new_key, open_seals
from moorage.main.security import Secrets
from moorage.model.errors import Invalid
from moorage.model.ids import ServerId
from moorage_testing.api_user import VERSION

SCRIPT, NEXT, FILE, PASSWORD = (
    "I2Nsb3VkLWNvbmZpZyBvbmU=",
    "I2Nsb3VkLWNvbmZpZyB0d28=",
    "YSBmaWxlIG9mIG1pbmU=",
    "pass of mine 1",
)
SECRETS = (SCRIPT, NEXT, FILE, PASSWORD)


def in_clear(data: Path) -> list[str]:
    """Databases of the region and its cells, and what SQLite has beside them, in which a secret can be read."""
    files = [path for name in ("region", "cell1", "cell2") for path in data.glob(f"{name}.db*")]
    assert len(files) >= 3
    return [path.name for path in files if any(each.encode() in path.read_bytes() for each in SECRETS)]


async def test_no_database_of_the_region_has_a_secret_in_clear(start: Start) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        person = running.admin
        files = [{"path": "/etc/motd", "contents": FILE}]
        person.http.headers["OpenStack-API-Version"] = "compute 2.56"  # personality is of the past
        old = await person.ask_boot("web", user_data=SCRIPT, personality=files, adminPass=PASSWORD, config_drive=True)
        person.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
        assert old.status_code == 202, old.text
        server = (await person.settled(old.json()["server"]["id"]))["id"]
        await running.wait_until_unlocked(server)
        assert in_clear(running.config.data) == []
        shown = await person.server(server)
        assert shown is not None
        assert shown["OS-EXT-SRV-ATTR:user_data"] == SCRIPT
        driver = running.cloud.fleet.drivers[shown["OS-EXT-SRV-ATTR:host"]]
        assert driver.spec_of(ServerId(server)).user_data == SCRIPT
        assert [each.contents for each in driver.spec_of(ServerId(server)).files] == [FILE]
        drive = driver.config_drive(ServerId(server))
        assert drive is not None
        assert base64.b64decode(SCRIPT) in drive
        assert PASSWORD.encode() in drive
        listed = await person.compute("GET", "/servers/detail")
        assert [each["OS-EXT-SRV-ATTR:user_data"] for each in listed.json()["servers"]] == [SCRIPT]

        rebuilt = await person.compute(
            "POST", f"/servers/{server}/action", {"rebuild": {"imageRef": shown["image"]["id"], "user_data": NEXT}}
        )
        assert rebuilt.status_code == 202, rebuilt.text
        assert rebuilt.json()["server"]["user_data"] == NEXT
        await person.settled(server)
        await running.wait_until_unlocked(server)
        assert driver.spec_of(ServerId(server)).user_data == NEXT
        await keys_are_changed(running, server)
        assert in_clear(running.config.data) == []


async def keys_are_changed(running: Running, server: str) -> None:
    """While the cloud goes on."""
    config, databases = running.config, running.cloud.region.databases
    before = running.cloud.region.seals.key
    await secrets_command.rotate(config, databases)
    assert running.cloud.region.seals.key != before
    await secrets_command.drop_old(config, databases)
    shown = await running.admin.server(server)
    assert shown is not None
    assert shown["OS-EXT-SRV-ATTR:user_data"] == NEXT


async def test_a_process_without_the_regions_key_is_refused(tmp_path: Path) -> None:
    config = a_config(tmp_path / "data")
    databases = await open_databases(config)
    try:
        mine = (await open_seals(config, databases.region)).key
        key = tmp_path / "data" / "secrets" / "region-key"
        key.rename(tmp_path / "kept")
        with pytest.raises(Invalid, match="copy the file from where another process"):
            await open_seals(config, databases.region)
        assert not key.exists(), "whoever looks for the keys next is not led astray"
        elsewhere = a_config(tmp_path / "data", secrets=Secrets(key_file="../kept"))
        assert (await open_seals(elsewhere, databases.region)).key == mine
        stranger = a_config(tmp_path / "data", secrets=Secrets(keys=(new_key(),)))
        with pytest.raises(Invalid, match=f"does not have the region's key {mine}"):
            await open_seals(stranger, databases.region)
        await secrets_command.anew(config, databases, lost=True)
        assert (await open_seals(config, databases.region)).key != mine
    finally:
        await databases.close()
