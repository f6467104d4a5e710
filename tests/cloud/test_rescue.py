"""Rescue and unrescue in a whole cloud: the guest on the rescue image and back, undone when the host fails, and deleted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start
from tests.cloud.test_config_drive import files_on, latest
from tests.cloud.test_rebuild import guest, second_image

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def act(running: Running, server: str, body: Any) -> Any:
    return await running.admin.compute("POST", f"/servers/{server}/action", body)


async def test_a_server_is_rescued_and_unrescued(running: Running) -> None:
    admin = running.admin
    server = await admin.active("sick")
    image = await second_image(running, "rescue", hw_rescue_device="cdrom", hw_rescue_bus="scsi")
    answer = await act(running, server["id"], {"rescue": {"rescue_image_ref": image}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["adminPass"]
    after = await admin.settled(server["id"])
    assert (after["status"], after["image"]["id"]) == ("RESCUE", server["image"]["id"])
    made = guest(running, after)
    assert (made.rescue.image, made.rescue.device, made.rescue.bus) == (image, "cdrom", "scsi")
    assert made.power is PowerState.RUNNING
    assert (await act(running, server["id"], {"os-stop": None})).status_code == 409
    assert (await act(running, server["id"], {"unrescue": None})).status_code == 202
    after = await admin.settled(server["id"])
    assert (after["status"], guest(running, after).rescue) == ("ACTIVE", None)
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert {"rescue", "unrescue"} <= {row["action"] for row in rows}


async def test_a_rescued_guest_gets_its_password(running: Running) -> None:
    """On a config drive of its own, also after an unrescue that was taken back; and nobody else is."""

    async def told() -> tuple[str, str]:
        found = latest(files_on(running, after))
        assert found["uuid"] == server["id"]
        network = latest(files_on(running, after), "network_data.json")
        return found["admin_pass"], network["links"][0]["ethernet_mac_address"]

    admin = running.admin
    server = await admin.active("locked-out", config_drive=True, adminPass="of the boot")
    mac = server["addresses"]["private"][0]["OS-EXT-IPS-MAC:mac_addr"]
    answer = await act(running, server["id"], {"rescue": {"adminPass": "of the rescue"}})
    assert answer.json()["adminPass"] == "of the rescue"
    after = await admin.settled(server["id"])
    assert (after["status"], await told()) == ("RESCUE", ("of the rescue", mac))
    running.dial(server["OS-EXT-SRV-ATTR:host"], unrescue_guest=VerbDial(fail_times=1, fail_when="after", says="no"))
    assert (await act(running, server["id"], {"unrescue": None})).status_code == 202
    after = await admin.settled(server["id"])
    await running.wait_until_unlocked(server["id"])
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert (rows[0]["action"], rows[0]["message"]) == ("unrescue", "Error"), "it was taken back"
    assert (after["status"], await told()) == ("RESCUE", ("of the rescue", mac))
    held = [file for file in running.config.data.rglob("*") if file.is_file()]
    assert [file.suffix for file in held if b"of the rescue" in file.read_bytes()] == [".iso"]
    await act(running, server["id"], {"unrescue": None})
    after = await admin.settled(server["id"])
    assert (after["status"], await told()) == ("ACTIVE", ("of the boot", mac))
    made = (await act(running, server["id"], {"rescue": None})).json()["adminPass"]
    after = await admin.settled(server["id"])
    assert (after["status"], await told()) == ("RESCUE", (made, mac))
    await admin.gone(server["id"])
    host = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    assert host.config_drive(ServerId(server["id"])) is None
    assert not any(server["id"] in file.name for file in host._room.rglob("*"))


async def test_without_an_image_the_servers_or_the_configured_one_is_used(start: Start) -> None:
    async with start() as running:
        server = await running.admin.active("own")
        await act(running, server["id"], {"rescue": None})
        after = await running.admin.settled(server["id"])
        assert guest(running, after).rescue.image == server["image"]["id"]
        await running.admin.gone(server["id"])
        assert not any(each._guests for each in running.cloud.fleet.drivers.values())


async def test_a_stopped_server_is_rescued_and_active_afterwards(running: Running) -> None:
    admin = running.admin
    server = await admin.active("off")
    await act(running, server["id"], {"os-stop": None})
    await admin.settled(server["id"])
    assert (await act(running, server["id"], {"rescue": None})).status_code == 200
    assert (await admin.settled(server["id"]))["status"] == "RESCUE"
    await act(running, server["id"], {"unrescue": None})
    assert (await admin.settled(server["id"]))["status"] == "ACTIVE"


@pytest.mark.parametrize("off", [False, True])
async def test_a_failed_rescue_is_undone(running: Running, off: bool) -> None:
    admin = running.admin
    server = await admin.active("as-it-was")
    if off:
        await act(running, server["id"], {"os-stop": None})
        await admin.settled(server["id"])
    host = server["OS-EXT-SRV-ATTR:host"]
    running.dial(host, rescue_guest=VerbDial(fail_times=1, fail_when="after", says="the rescue disk is bad"))
    await act(running, server["id"], {"rescue": None})
    after = await admin.settled(server["id"])
    assert after["status"] == ("SHUTOFF" if off else "ACTIVE")
    assert guest(running, after).rescue is None
    assert guest(running, after).power is (PowerState.SHUTDOWN if off else PowerState.RUNNING)
    rows = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
    assert next(row for row in rows if row["action"] == "rescue")["message"] == "Error"


async def test_a_failed_unrescue_leaves_the_server_rescued(running: Running) -> None:
    admin = running.admin
    server = await admin.active("still-rescued")
    await act(running, server["id"], {"rescue": None})
    await admin.settled(server["id"])
    host = server["OS-EXT-SRV-ATTR:host"]
    running.dial(host, unrescue_guest=VerbDial(fail_times=1, fail_when="after", says="no"))
    await act(running, server["id"], {"unrescue": None})
    after = await admin.settled(server["id"])
    assert (after["status"], guest(running, after).rescue.image) == ("RESCUE", server["image"]["id"])
    await act(running, server["id"], {"unrescue": None})
    assert (await admin.settled(server["id"]))["status"] == "ACTIVE"


async def test_images_that_cannot_rescue(running: Running) -> None:
    server = await running.admin.active("well")
    odd = await second_image(running, "odd", hw_rescue_device="tape")
    mapped = await second_image(running, "mapped", img_block_device_mapping="[]")
    for image in (odd, mapped, "00000000-0000-4000-8000-00000000dead"):
        answer = await act(running, server["id"], {"rescue": {"rescue_image_ref": image}})
        assert answer.status_code == 400
        result = answer.json()["badRequest"]["message"]
        assert result == f"Requested rescue image '{image}' is not supported"


async def test_the_operators_rescue_image(start: Start) -> None:
    async with start(compute=Compute(rescue_image="00000000-0000-4000-8000-00000000dead")) as running:
        server = await running.admin.active("asks-for-it")
        answer = await act(running, server["id"], {"rescue": None})
        assert answer.status_code == 400
        assert "00000000dead' is not supported" in answer.text
