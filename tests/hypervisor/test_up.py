"""`moorage up --driver libvirt` as a process: a server is a real guest, and a kill at any moment loses no server and leaves nothing."""

import asyncio
import base64
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.real_guests import answers, call, ping, qemu_of

from moorage.model.ids import ServerId
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.hypervisor.guests import Pinging, act, allow_ping, upload
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.hypervisor

HOST = "real1"
REAL = f'[agent]\ndriver = "libvirt"\nhost = "{HOST}"\n\n[compute]\nallow_resize_to_same_host = true\n'
SAID = "moorage: this machine cannot run guests: it lacks a libvirt daemon"
USER_DATA = base64.b64encode(b"#!/bin/sh\necho GUEST: user data ran >/dev/console\n").decode()


async def volume_of(person: Person) -> str:
    reply = await person.volume("POST", "/volumes", {"volume": {"size": 1}})
    assert reply.status_code == 202, reply.text
    volume, ends = str(reply.json()["volume"]["id"]), time.monotonic() + PATIENCE_S
    while (await person.volume("GET", f"/volumes/{volume}")).json()["volume"]["status"] != "available":
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)
    return volume


async def image_of(person: Person, image: str) -> dict[str, Any]:
    """When it is whole."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        found: dict[str, Any] = (await person.http.get(f"{person.config.api.image.url}/v2/images/{image}")).json()
        if found["status"] == "active":
            return found
        assert time.monotonic() < ends, found
        await asyncio.sleep(0.1)


async def log_in(up: UpProcess) -> Person:
    person = Person(up.config)
    await person.log_in()
    return person


async def test_a_cloud_of_one_machine(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, REAL)
    room = tmp_path / "data" / "hosts" / HOST
    await asyncio.to_thread(up.start)
    person = await log_in(up)
    try:
        image = await upload(person)
        body = {"imageRef": image, "flavorRef": "42", "user_data": USER_DATA}
        body |= {"networks": [{"uuid": await person.id_of("network", "private")}]}
        first = (await person.active("first", **body))["id"]
        seen = await person.server(first)
        assert seen is not None
        assert seen["OS-EXT-SRV-ATTR:hypervisor_hostname"] == HOST
        address = seen["addresses"]["private"][0]["addr"]
        await says(person, first, "GUEST: ready first ")
        assert await ping(address), "no rule lets it in yet"
        await allow_ping(person)
        await answers(address)
        said = await says(person, first, "GUEST: ready first ")
        assert "GUEST: config-drive" in said
        assert "GUEST: user data ran" in said

        await act(person, first, "SHUTOFF", **{"os-stop": None})
        assert "guest-" not in call("virsh", "-q", "list", "--name")
        await act(person, first, "ACTIVE", **{"os-start": None})
        await says(person, first, "GUEST: boot number 2")
        await says(person, first, "GUEST: ready", 2)
        await act(person, first, "ACTIVE", reboot={"type": "SOFT"})
        await says(person, first, "GUEST: boot number 3")
        await answers(address)

        volume = await volume_of(person)
        attach = f"/servers/{first}/os-volume_attachments"
        assert (await person.compute("POST", attach, {"volumeAttachment": {"volumeId": volume}})).is_success
        await says(person, first, f"GUEST: disk vdb {1 << 21}")
        assert (await person.compute("DELETE", f"{attach}/{volume}")).status_code == 202
        await says(person, first, "GUEST: disk vdb gone")
        reply = await person.compute("POST", f"/servers/{first}/action", {"createImage": {"name": "copy"}})
        assert (await image_of(person, reply.json()["image_id"]))["disk_format"] == "qcow2"

        # Killed, and back: the guest did not notice.
        qemu, pinging = qemu_of(ServerId(first)), Pinging(address)
        assert await asyncio.to_thread(up.end, signal.SIGKILL) == -signal.SIGKILL
        await answers(address)
        await asyncio.to_thread(up.start)
        await person.http.aclose()
        person = await log_in(up)
        assert (await person.settled(first))["status"] == "ACTIVE"
        assert qemu_of(ServerId(first)) == qemu
        answered, lost = pinging.end()
        assert (answered > 50, lost) == (True, [])
        await act(person, first, "VERIFY_RESIZE", resize={"flavorRef": "84"})
        await says(person, first, "GUEST: boot number 4")
        confirmed = await person.compute("POST", f"/servers/{first}/action", {"confirmResize": None})
        assert confirmed.status_code == 204, confirmed.text
        await person.delete(first)
        await person.gone(first)
        assert leftovers(room) == []

        # Killed in the middle of boots; whatever becomes of each, it ends well, and is as the host has it.
        for number, seconds in enumerate((0.5, 1.5)):
            reply = await person.ask_boot(f"cut-{number}", **body)
            server = str(reply.json()["server"]["id"])
            await asyncio.sleep(seconds)
            await asyncio.to_thread(up.end, signal.SIGKILL)
            await asyncio.to_thread(up.start)
            await person.http.aclose()
            person = await log_in(up)
            assert (await person.settled(server))["status"] == "ACTIVE"
            await answers((await person.server(server) or {})["addresses"]["private"][0]["addr"])
            await person.delete(server)
            await person.gone(server)
            assert leftovers(room) == []

        # A guest that is here when the cloud is given up goes with `moorage agent clean`, and nothing else does it.
        last = (await person.active("last", **body))["id"]
        words = [sys.executable, "-m", "moorage", "agent", "clean", "--config", str(up.path), "--host", HOST]
        refused = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
        assert (refused.returncode, "another agent runs" in refused.stderr) == (2, True)
        await asyncio.to_thread(up.end, signal.SIGINT)
        assert last in call("virsh", "-q", "list", "--name")
        would = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
        assert (would.returncode, last in would.stdout) == (1, True)
        assert last in call("virsh", "-q", "list", "--name")
        done = await asyncio.to_thread(subprocess.run, [*words, "--yes"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert leftovers(room) == []
        assert not room.exists()
    finally:
        await person.http.aclose()
        await asyncio.to_thread(up.give_up, HOST)


async def test_missing_programs_are_reported(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, f'{REAL}\n[libvirt]\nuri = "qemu+unix:///system?socket={tmp_path}/nobody"\n')
    words = [sys.executable, "-m", "moorage", "up", "--config", str(up.path), "--no-clouds-yaml"]
    ended = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.strip().splitlines()[-1].startswith(SAID)
    assert "libvirt-daemon-system" in ended.stderr
