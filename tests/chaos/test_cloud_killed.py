"""`moorage up` as a process, killed with -9 or stopped with Ctrl-C: the next start has everything that was acknowledged."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.main.local_cluster.ports import free_ports
from moorage.model.resources import IPV4_ADDRESS
from moorage_testing.api_user import Person
from moorage_testing.leak_audit import guests_on_disk, nothing_leaked
from moorage_testing.private_files import open_to_others
from moorage_testing.up_process import READY_S, SERVICES, UpProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def upped(tmp_path: Path) -> Iterator[UpProcess]:
    up = UpProcess(tmp_path)
    up.start()
    yield up
    if up.process is not None:
        up.end(signal.SIGKILL)


@pytest.mark.parametrize("accepted", [3, 15, 40])
async def test_killed_in_the_middle_of_boots_and_deletes(upped: UpProcess, accepted: int) -> None:
    async with Person(upped.config) as admin:
        earlier = [(await admin.active(f"earlier-{number}"))["id"] for number in range(6)]
        running = {each: hosts for each, hosts in guests_on_disk(upped.config.data).items() if each in earlier[:3]}
        asked = [asyncio.create_task(admin.boot(f"many-{number}", networks="private")) for number in range(40)]
        promised = [await each for each in asked[:accepted]]
        for each in earlier[3:]:
            await admin.delete(each)
        if accepted == len(asked):
            await admin.settled(promised[-1])
        upped.end(signal.SIGKILL)
        promised += [
            each for each in await asyncio.gather(*asked[accepted:], return_exceptions=True) if isinstance(each, str)
        ]
    garbled = upped.config.data / "hosts" / "host1" / "guests" / "99999999-0000-4000-8000-000000000000.json"
    garbled.write_bytes(b'{"spec": {"server": "9999')
    upped.start()
    assert (garbled.parent.parent / "set-aside" / garbled.name).is_file(), "what cannot be read stops nobody"
    async with Person(upped.config) as admin:
        found = await asyncio.gather(*(admin.settled(each) for each in promised))
        assert [(each["id"], each.get("fault")) for each in found if each["status"] != "ACTIVE"] == []
        for each in earlier[3:]:
            await admin.absent(each)
        seen = await nothing_leaked(upped.config, admin)
        assert set(promised) | set(earlier[:3]) <= set(seen.servers)
        assert {each: seen.guests[each] for each in earlier[:3]} == running
        assert {server.status for server in seen.servers.values()} == {"ACTIVE"}
        again = await admin.active("afterwards")
        await admin.gone(again["id"])


@pytest.mark.parametrize("answered", [0, 3, 7])
async def test_killed_in_the_middle_of_attaches_and_detaches(upped: UpProcess, answered: int) -> None:
    """What was answered is there; whatever else there is, network service, record, claim and guest agree on it."""
    async with Person(upped.config) as admin:
        servers = [(await admin.active(f"wired-{number}"))["id"] for number in range(4)]
        networks = [await admin.id_of("network", name) for name in ("private", "routed")]
        booted = {each: (await attached_to(admin, each)).pop() for each in servers[:2]}
        asked = [
            asyncio.create_task(
                admin.compute("POST", f"/servers/{each}/os-interface", {"interfaceAttachment": {"net_id": network}})
            )
            for network in networks
            for each in servers
        ]
        done: list[str] = []
        for each in asked[:answered]:
            reply = await each
            assert reply.status_code == 200, reply.text
            done.append(reply.json()["interfaceAttachment"]["port_id"])
        detaching = [
            asyncio.create_task(admin.compute("DELETE", f"/servers/{each}/os-interface/{port}"))
            for each, port in booted.items()
        ]
        await asyncio.wait(detaching, timeout=0.05)
        upped.end(signal.SIGKILL)
        await asyncio.gather(*asked, *detaching, return_exceptions=True)
    upped.start()
    async with Person(upped.config) as admin:
        seen = await nothing_leaked(upped.config, admin)  # waits for what was under way
        on_segments = [
            ip for ports in seen.ports.values() for port in ports if port["network_id"] == networks[1]
            for ip in port["fixed_ips"]
        ]  # fmt: skip
        claimed = [n for held in seen.claims.values() for (_, resource), n in held.items() if resource == IPV4_ADDRESS]
        assert sum(claimed) == len(on_segments)
        left: set[str] = set()
        for each in servers:
            ports = await attached_to(admin, each)
            found = (await admin.network("GET", "/ports", device_id=each)).json()["ports"]
            assert ports == {port["id"] for port in found} == plugged(upped.config.data, each)
            shown = await admin.server(each)
            assert shown is not None
            told = {address["addr"] for addresses in shown["addresses"].values() for address in addresses}
            assert told == {ip["ip_address"] for port in found for ip in port["fixed_ips"]}
            left |= ports
        assert set(done) <= left
        for each in servers:
            await admin.gone(each)
        await nothing_leaked(upped.config, admin)


async def attached_to(admin: Person, server: str) -> set[str]:
    rows = (await admin.compute("GET", f"/servers/{server}/os-interface")).json()["interfaceAttachments"]
    return {row["port_id"] for row in rows}


def plugged(data: Path, server: str) -> set[str]:
    """The ports that the server's guest has, on whichever host it is."""
    (file,) = data.glob(f"hosts/*/guests/{server}.json")
    return {str(vif.port) for vif in msgspec.json.decode(file.read_bytes(), type=SimulatedGuest).spec.vifs}


async def test_ctrl_c_stops_and_the_next_start_has_the_same_servers(upped: UpProcess) -> None:
    async with Person(upped.config) as admin:
        before = await admin.active("stays")
        unfinished = [await admin.boot(f"just-accepted-{number}") for number in range(5)]
    assert upped.end(signal.SIGINT) == 0
    assert "Traceback" not in upped.log.read_text()
    assert guests_on_disk(upped.config.data)[before["id"]] == [before["OS-EXT-SRV-ATTR:host"]]
    upped.start()
    async with Person(upped.config) as admin:
        after = await admin.settled(before["id"])
        assert (after["status"], after["addresses"]) == ("ACTIVE", before["addresses"])
        assert {(await admin.settled(each))["status"] for each in unfinished} == {"ACTIVE"}
        await nothing_leaked(upped.config, admin)


def test_a_used_port_is_reported_clearly(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        others = [
            f"--{name}-port={free}" for name, free in zip(SERVICES[1:], free_ports(len(SERVICES) - 1), strict=True)
        ]
        command = [sys.executable, "-m", "moorage", "up", f"--data-dir={tmp_path}", f"--identity-port={port}", *others]
        reply = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=tmp_path, check=False)
    assert reply.returncode == 2
    assert f"port {port} on 127.0.0.1 is taken" in reply.stderr
    assert "Traceback" not in reply.stderr


def test_a_used_directory_is_reported_clearly(upped: UpProcess) -> None:
    ports = [f"--{name}-port={free}" for name, free in zip(SERVICES, free_ports(len(SERVICES)), strict=True)]
    command = [sys.executable, "-m", "moorage", "up", f"--data-dir={upped.config.data}", *ports]
    reply = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=upped.directory, check=False)
    assert reply.returncode == 2
    assert "another moorage already runs" in reply.stderr


async def test_stored_files_are_private(upped: UpProcess) -> None:
    """The directory was an earlier release's, which left it to everybody."""
    data = upped.config.data
    upped.end(signal.SIGINT)
    assert open_to_others(data) == []
    for path in (data, data / "region.db", data / "hosts" / "agents.db"):
        path.chmod(0o755)
    upped.start()
    async with Person(upped.config) as admin:
        server = await admin.active("kept", config_drive=True)
        kept = {path.name for path in data.rglob("*")}
        assert {"region.db", "region.db-wal", "region.db-shm", "cell1.db", "identity.db", "agents.db", "lock"} <= kept
        assert f"{server['id']}.json" in kept
        assert open_to_others(data) == []
