"""`moorage up --driver libvirt`: what a server's owner sees when its guest ends by itself, and of what changes while it is suspended."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.real_guests import answers, call, qemu_of
from tests.hypervisor.test_up import HOST, REAL, log_in

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.hypervisor.guests import act, allow_ping, upload
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.up_process import UpProcess

pytestmark = pytest.mark.hypervisor


async def becomes(person: Person, server: str, status: str) -> dict[str, Any]:
    """By itself."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        seen = await person.server(server)
        assert seen is not None
        if seen["status"] == status and seen["OS-EXT-STS:task_state"] is None:
            return seen
        assert time.monotonic() < ends, seen
        await asyncio.sleep(0.2)


async def has_addresses(person: Person, server: str, count: int) -> None:
    ends = time.monotonic() + PATIENCE_S
    while len(((await person.server(server)) or {})["addresses"].get("private", ())) != count:
        assert time.monotonic() < ends
        await asyncio.sleep(0.2)


async def test_guests_that_end_and_ports_that_go(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, REAL)
    room = tmp_path / "data" / "hosts" / HOST
    await asyncio.to_thread(up.start)
    person = await log_in(up)
    try:
        private = {"uuid": await person.id_of("network", "private")}
        body = {"imageRef": await upload(person), "flavorRef": "42", "networks": [private, private]}
        first = (await person.active("first", **body))["id"]
        await allow_ping(person)
        await says(person, first, "GUEST: ready first ")

        # A port is deleted while the server is suspended: it goes on without.
        ports = (await person.network("GET", "/ports", device_id=first)).json()["ports"]
        kept, gone = sorted(ports, key=lambda each: str(each["id"]))
        await act(person, first, "SUSPENDED", suspend=None)
        assert (await person.network("DELETE", f"/ports/{gone['id']}")).is_success
        await has_addresses(person, first, 1)
        await act(person, first, "ACTIVE", resume=None)
        await answers(kept["fixed_ips"][0]["ip_address"])
        assert gone["mac_address"] not in call("virsh", "-q", "dumpxml", first)

        # Its QEMU is killed; and it is shut down by who is logged in.
        for ends in range(2):
            if ends:
                call("virsh", "-q", "shutdown", first)
            else:
                os.kill(qemu_of(ServerId(first)), signal.SIGKILL)
            seen = await becomes(person, first, "SHUTOFF")
            assert seen["OS-EXT-STS:power_state"] in {PowerState.CRASHED, PowerState.SHUTDOWN}
            if ends:
                break
            await act(person, first, "ACTIVE", **{"os-start": None})
            await says(person, first, "GUEST: boot number 2")
            await says(person, first, "GUEST: ready first ", 2)

        # It stays off, also when the host is started anew.
        await asyncio.to_thread(up.end, signal.SIGKILL)
        await asyncio.to_thread(up.start)
        await person.http.aclose()
        person = await log_in(up)
        assert (await person.settled(first))["status"] == "SHUTOFF"
        assert first not in call("virsh", "-q", "list", "--name")

        # Somebody starts it past Moorage: it is shut down again.
        call("virsh", "-q", "start", first)
        ends = time.monotonic() + PATIENCE_S
        while first in call("virsh", "-q", "list", "--name"):
            assert time.monotonic() < ends
            await asyncio.sleep(0.5)
        assert (await person.settled(first))["status"] == "SHUTOFF"
        await act(person, first, "ACTIVE", **{"os-start": None})
        await says(person, first, "GUEST: boot number 4")
        await person.delete(first)
        await person.gone(first)
        assert leftovers(room) == []
    finally:
        await person.http.aclose()
        await asyncio.to_thread(up.give_up, HOST)
