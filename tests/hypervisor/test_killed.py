"""`kill -9` of an agent, a libvirt daemon and a conductor during operations on a real guest: the operation ends well, and the guest is as it is shown."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest
from tests.helpers.real_guests import call
from tests.hypervisor.test_set import host_of, nothing_left
from tests.hypervisor.test_up import volume_of

from moorage.main.local_cluster.cluster import TrialSet
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.guests import upload

pytestmark = pytest.mark.hypervisor

HOST, OTHER = "host1", "host2"
VICTIMS = ("agent", "daemon", "conductor")
SETTINGS = "\n[compute]\nhost_silence_s = 150\nlease_s = 6\nlease_beat_s = 1\n"
"""A machine that does much else needs long to start an agent: the host is not down before."""


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialSet]:
    made = TrialSet(
        tmp_path_factory.mktemp("set"),
        hosts=2,
        apis=1,
        conductors=1,
        cells=1,
        real_guests=True,
        settings=SETTINGS,
    )
    made.start()
    yield made
    made.stop()


def kill(trial: TrialSet, victim: str) -> None:
    """With -9; and it is started again."""
    assert trial.real is not None
    if victim == "daemon":
        trial.real.daemons[HOST].kill()
        trial.real.daemons[HOST].start()
        return
    name = f"agent-{HOST}" if victim == "agent" else "conductor-1"
    trial.kill(name)
    trial.run(name, *trial.arguments_of(name))


async def until(what: str, good: Callable[[], Awaitable[Any]]) -> Any:
    """What it says in the end, which is true."""
    ends = time.monotonic() + PATIENCE_S
    while not (now := await good()):
        assert time.monotonic() < ends, what
        await asyncio.sleep(0.05)
    return now


async def ended(person: Person, server: str) -> dict[str, Any]:
    """The server when nothing is done to it any more."""

    async def at_rest() -> dict[str, Any] | None:
        seen = await person.server(server)
        assert seen is not None
        busy = seen["status"] in {"BUILD", "MIGRATING"} or seen["OS-EXT-STS:task_state"] is not None
        return None if busy else seen

    seen: dict[str, Any] = await until(f"{server} is at rest", at_rest)
    return seen


def domains(trial: TrialSet) -> dict[str, set[str]]:
    """Host → the domains there."""
    assert trial.real is not None
    listed = ("list", "--all", "--name")
    return {
        host: set(call("virsh", "-q", "-c", daemon.uri, *listed).split()) for host, daemon in trial.real.daemons.items()
    }


def devices(trial: TrialSet, host: str, server: str) -> tuple[set[str], set[str]]:
    """The MACs and the volumes of its domain, while it runs."""
    assert trial.real is not None
    xml = ET.fromstring(call("virsh", "-q", "-c", trial.real.daemons[host].uri, "dumpxml", f"guest-{server}"))
    macs = {str(each.get("address")) for each in xml.iterfind("devices/interface/mac")}
    files = [str(each.get("file")) for each in xml.iterfind("devices/disk/source")]
    return macs, {each.rpartition("/volume-")[2] for each in files if "/volumes/volume-" in each}


async def as_shown(trial: TrialSet, person: Person, server: str) -> None:
    """One domain on the host that is shown, with the interfaces and volumes that are shown, and a tap for each."""
    assert trial.real is not None

    async def same() -> bool:
        host = await host_of(person, server)
        there = await asyncio.to_thread(domains, trial)
        if there != {each: {f"guest-{server}"} if each == host else set() for each in there}:
            return False
        ports = (await person.compute("GET", f"/servers/{server}/os-interface")).json()["interfaceAttachments"]
        volumes = (await person.compute("GET", f"/servers/{server}/os-volume_attachments")).json()["volumeAttachments"]
        bound = (await person.network("GET", "/ports", device_id=server)).json()["ports"]
        shown = {each["mac_addr"] for each in ports}, {each["volumeId"] for each in volumes}
        taps = [
            len(await asyncio.to_thread(taps_of, trial, each)) == (len(ports) if each == host else 0) for each in there
        ]
        return all(taps) and len(bound) == len(ports) and shown == await asyncio.to_thread(devices, trial, host, server)

    await until(f"{server} is as it is shown", same)


def taps_of(trial: TrialSet, host: str) -> list[str]:
    assert trial.real is not None
    return [each for each in call(*trial.real.inside(host), "ip", "-br", "link").split() if each.startswith("tap")]


async def cut(
    trial: TrialSet, victim: str, asked: Awaitable[httpx.Response], begun: Callable[[], Awaitable[Any]]
) -> int:
    """Ask, kill as soon as it has begun, and wait for the answer; its status."""
    asking = asyncio.ensure_future(asked)

    async def either() -> bool:
        return asking.done() or bool(await begun())

    await until("it has begun", either)
    await asyncio.to_thread(kill, trial, victim)
    return (await asking).status_code


@pytest.mark.parametrize("victim", VICTIMS)
async def test_killed_in_the_middle(trial: TrialSet, victim: str) -> None:
    async with Person(trial.config) as person:
        try:
            await _killed(trial, person, victim)
        finally:  # the next one begins with nothing
            await person.leave_nothing(await person.images())
        for host in (HOST, OTHER):
            await nothing_left(trial, host)


async def _killed(trial: TrialSet, person: Person, victim: str) -> None:
    image = await upload(person)
    body: dict[str, Any] = {"imageRef": image, "flavorRef": "42", "availability_zone": f"nova:{HOST}"}
    server = await _boot(trial, person, victim, body)
    if server is None:  # it ended in ERROR, and nothing was left of it
        server = str((await person.active("again", **body))["id"])
    await says(person, server, "GUEST: ready")
    await as_shown(trial, person, server)
    await _attach(trial, person, victim, server)
    await _copy(trial, person, victim, server)
    await _move(trial, person, victim, server)


async def _boot(trial: TrialSet, person: Person, victim: str, body: dict[str, Any]) -> str | None:
    guests = trial.config.data / "hosts" / HOST / "guests"

    async def begun() -> list[Path]:
        return list(guests.glob("*/guest.json"))

    status = await cut(trial, victim, person.ask_boot("cut", **body), begun)
    assert status == 202
    found = (await person.compute("GET", "/servers", name="cut")).json()["servers"]
    server = str(found[0]["id"])
    if (await ended(person, server))["status"] == "ACTIVE":
        return server
    assert victim == "daemon", "only a host without its hypervisor refuses a guest"
    await person.delete(server)
    await person.gone(server)
    await nothing_left(trial, HOST)
    return None


async def _attach(trial: TrialSet, person: Person, victim: str, server: str) -> None:
    """An interface, and a volume."""
    network = await person.id_of("network", "private")

    async def has_port() -> bool:
        return len((await person.network("GET", "/ports", device_id=server)).json()["ports"]) > 1

    asked = {"interfaceAttachment": {"net_id": network}}
    await cut(trial, victim, person.compute("POST", f"/servers/{server}/os-interface", asked), has_port)
    await ended(person, server)
    await as_shown(trial, person, server)

    volume = await volume_of(person)

    async def is_taken() -> bool:
        return str((await person.volume("GET", f"/volumes/{volume}")).json()["volume"]["status"]) != "available"

    wanted = {"volumeAttachment": {"volumeId": volume}}
    await cut(trial, victim, person.compute("POST", f"/servers/{server}/os-volume_attachments", wanted), is_taken)
    await ended(person, server)
    await as_shown(trial, person, server)

    async def is_settled() -> bool:
        return str((await person.volume("GET", f"/volumes/{volume}")).json()["volume"]["status"]) in {
            "available",
            "in-use",
        }

    await until("the volume is attached or free", is_settled)


async def _copy(trial: TrialSet, person: Person, victim: str, server: str) -> None:
    """A snapshot: whole, or no image is left that is never filled; the guest writes to its own disk afterwards."""

    async def is_copied() -> bool:
        seen = await person.server(server)
        return seen is not None and seen["OS-EXT-STS:task_state"] is not None

    name = f"copy-{victim}"
    asked = {"createImage": {"name": name}}
    assert await cut(trial, victim, person.compute("POST", f"/servers/{server}/action", asked), is_copied) == 202
    assert (await ended(person, server))["status"] == "ACTIVE"

    async def is_whole_or_gone() -> bool:
        url = f"{person.config.api.image.url}/v2/images"
        found = (await person.http.get(url, params={"name": name})).json()["images"]
        return all(each["status"] == "active" for each in found)

    await until("the image is whole or gone", is_whole_or_gone)
    await as_shown(trial, person, server)


async def _move(trial: TrialSet, person: Person, victim: str, server: str) -> None:
    """It runs on one of both hosts, and has not booted."""

    async def moves() -> bool:
        seen = await person.server(server)
        return seen is not None and seen["status"] == "MIGRATING"

    asked = {"os-migrateLive": {"host": OTHER, "block_migration": "auto"}}
    assert await cut(trial, victim, person.compute("POST", f"/servers/{server}/action", asked), moves) == 202
    assert (await ended(person, server))["status"] == "ACTIVE"
    await as_shown(trial, person, server)
    assert (await says(person, server, "GUEST: ready")).count("GUEST: kernel") == 1
