"""`moorage set --driver libvirt`: three hosts in namespaces of this machine, and servers that change hosts."""

import asyncio
import base64
import os
import pwd
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.real_guests import call

from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.libvirt_daemon import DaemonCertificates
from moorage.main.local_cluster.qemu_user import qemu_user
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.hypervisor.guests import act, allow_ping, bridge_to, upload
from moorage_testing.hypervisor.guests import until_logged as says
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.machine import HIERARCHIES

pytestmark = pytest.mark.hypervisor

PINGS = """#!/bin/sh
( n=0; while :; do ping -c1 -W1 {address} >/dev/null 2>&1 && {{ n=$((n+1)); echo "GUEST: answer $n" >/dev/console; }}; sleep 1; done ) &
"""
SHARES = "512"
SETTINGS = "\n[compute]\nhost_silence_s = 15\nlive_migration_permit_post_copy = true\n"


def limits_processors() -> bool:
    return bool(os.environ.get(HIERARCHIES))


async def host_of(person: Person, server: str) -> str:
    seen = await person.server(server)
    assert seen is not None
    return str(seen["OS-EXT-SRV-ATTR:host"])


async def address_of(person: Person, server: str) -> str:
    seen = await person.server(server)
    assert seen is not None
    return str(seen["addresses"]["private"][0]["addr"])


def reaches(trial: TrialSet, host: str, address: str) -> bool:
    """From the host to a guest of its own."""
    assert trial.real is not None
    inside = trial.real.inside(host)
    words = [*inside, "ping", "-c1", "-W1", *bridge_to(address, inside), address]
    return subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0


async def reached(trial: TrialSet, host: str, address: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(reaches, trial, host, address):
        assert time.monotonic() < ends, f"{host} does not reach {address}"


def rights_of_guests(trial: TrialSet) -> set[tuple[str, str]]:
    """User and capabilities of each process of QEMU."""
    assert trial.real is not None
    found = set()
    for daemon in trial.real.daemons.values():
        for file in (daemon.run / "qemu").glob("guest-*.pid"):
            status = Path(f"/proc/{int(file.read_text())}/status").read_text()
            said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            found.add((pwd.getpwuid(int(said["Uid"].split()[1])).pw_name, said["CapEff"].strip("0")))
    return found


def may(user: str, *words: str) -> bool:
    """Whether this user's command works."""
    login = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups"]
    return not subprocess.run([*login, *words], capture_output=True, check=False).returncode


def check_rights(trial: TrialSet, host: str, server: str) -> None:
    """A guest is its QEMU's user and no more: neither root nor a reader of what roles and daemons keep for themselves."""
    assert trial.real is not None
    user = qemu_user().name
    assert rights_of_guests(trial) == {(user, "")}
    disk = next((trial.directory / "data" / "hosts" / host / "guests" / server).rglob("disk"))
    daemon = trial.real.daemons[host]
    assert may(user, "test", "-w", str(disk))
    assert may(user, "test", "-r", str(daemon.pki / "server-key.pem"))
    for ours in (trial.path_of(f"agent-{host}"), trial.directory / "data" / "hosts" / host / "agent.db"):
        assert not may(user, "test", "-r", str(ours)), ours
    assert not may(user, "ls", str(trial.directory))
    assert not may(user, "virsh", "-c", daemon.uri, "list")
    assert not may("nobody", "test", "-e", str(disk))


async def nothing_left(trial: TrialSet, host: str) -> None:
    assert trial.real is not None
    room, ends = trial.directory / "data" / "hosts" / host, time.monotonic() + PATIENCE_S
    daemon, inside = trial.real.daemons[host], trial.real.inside(host)
    look = partial(leftovers, room, uri=daemon.uri, inside=inside, groups=daemon.groups_of_guests)
    while found := await asyncio.to_thread(look):
        assert time.monotonic() < ends, found
        await asyncio.sleep(0.3)


async def answered_again(person: Person, server: str) -> None:
    """The guest there has had an answer that it had not before."""
    before = (await says(person, server, "GUEST: answer")).count("GUEST: answer")
    await says(person, server, "GUEST: answer", before + 2)


async def test_three_hosts(tmp_path: Path) -> None:
    trial = TrialSet(tmp_path, hosts=3, apis=1, conductors=1, cells=1, real_guests=True, settings=SETTINGS)
    await asyncio.to_thread(trial.start)
    try:
        async with Person(trial.config) as person:
            await _moves(trial, person)
    finally:
        await asyncio.to_thread(trial.stop)
    assert trial.real is not None
    assert trial.real.prefix not in await asyncio.to_thread(call, "ip", "netns")


async def _moves(trial: TrialSet, person: Person) -> None:
    assert trial.real is not None
    image = await upload(person)
    await allow_ping(person)
    if limits_processors():
        specs = await person.compute(
            "POST", "/flavors/42/os-extra_specs", {"extra_specs": {"quota:cpu_shares": SHARES}}
        )
        assert specs.status_code == 200, specs.text
    body = {"imageRef": image, "flavorRef": "42", "networks": [{"uuid": await person.id_of("network", "private")}]}
    first = (await person.active("first", **body))["id"]
    address = await address_of(person, first)
    source = await host_of(person, first)
    pings = base64.b64encode(PINGS.format(address=address).encode()).decode()
    second = (await person.active("second", user_data=pings, **body))["id"]
    assert await host_of(person, second) != source
    await reached(trial, source, address)
    await asyncio.to_thread(check_rights, trial, source, first)
    await answered_again(person, second)

    # A host that shows a certificate of another authority sends nothing.
    taken = {source, await host_of(person, second)}
    third = next(each for each in trial.real.names if each not in taken)
    await _is_refused(trial, person, first, (source, third))

    # It goes to the third host while the other one pings it.
    await act(person, first, "ACTIVE", **{"os-migrateLive": {"host": third, "block_migration": "auto"}})
    assert await host_of(person, first) == third
    await reached(trial, third, address)
    assert not await asyncio.to_thread(reaches, trial, source, address), "nothing of it is left there"
    if limits_processors():
        uri = trial.real.daemons[third].uri
        scheduled = (await asyncio.to_thread(call, "virsh", "-q", "-c", uri, "schedinfo", f"guest-{first}")).split()
        assert scheduled[scheduled.index("cpu_shares") :][:3] == ["cpu_shares", ":", SHARES]
    await answered_again(person, second)
    assert (await says(person, first, "GUEST: ready")).count("GUEST: kernel") == 1
    await asyncio.to_thread(check_rights, trial, third, first)

    for host in trial.real.names:
        listening = await asyncio.to_thread(call, *trial.real.inside(host), "ss", "-Hltn")
        assert ":16514 " in listening
        assert ":16509 " not in listening, "a daemon is reached by TLS only"

    # Another size on another host, and back.
    await act(person, first, "VERIFY_RESIZE", resize={"flavorRef": "84"})
    assert await host_of(person, first) != third
    await says(person, first, "GUEST: boot number 2")
    await act(person, first, "ACTIVE", revertResize=None)
    assert await host_of(person, first) == third
    await reached(trial, third, address)

    # A host loses its power: what was there starts from its image elsewhere, and what is left there goes when it returns.
    trial.kill(f"agent-{third}")
    trial.real.crash(third)
    services = (await person.compute("GET", "/os-services", host=third)).json()["services"]
    down = await person.compute("PUT", f"/os-services/{services[0]['id']}", {"forced_down": True})
    assert down.status_code == 200, down.text
    await act(person, first, "SHUTOFF", evacuate={})  # and it stays so, from 2.95 on
    assert await host_of(person, first) != third
    await act(person, first, "ACTIVE", **{"os-start": None})
    await says(person, first, "GUEST: boot number 1")
    await reached(trial, await host_of(person, first), address)
    await asyncio.to_thread(trial.real.daemons[third].start)
    await asyncio.to_thread(trial.run, f"agent-{third}", *trial.arguments_of(f"agent-{third}"))
    await nothing_left(trial, third)

    for each in (first, second):
        await person.delete(each)
        await person.gone(each)
    for host in trial.real.names:
        await nothing_left(trial, host)


async def _is_refused(trial: TrialSet, person: Person, server: str, way: tuple[str, str]) -> None:
    """The server stays, and its explanation has the reason."""
    assert trial.real is not None
    source, target = way
    daemon, ours = trial.real.daemons[source], trial.real.daemons[target].certificates
    assert daemon.certificates is not None
    assert ours is not None
    other = CertificateAuthority(trial.directory / "other", "another")
    both = trial.directory / "both.pem"
    both.write_bytes(ours.authority.read_bytes() + other.file.read_bytes())
    DaemonCertificates(both, other.issue(source), ()).lay_out(daemon.pki, daemon.user)
    await act(person, server, "ACTIVE", **{"os-migrateLive": {"host": target, "block_migration": "auto"}})
    assert await host_of(person, server) == source
    explained = (await person.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]["operations"][-1]
    assert "certificate" in str(explained).lower(), explained
    daemon.certificates.lay_out(daemon.pki, daemon.user)
