"""The Redfish fence plug-in against the emulator of its library: what counts as off, what is switched off, and what cannot be decided."""

import asyncio
import datetime
import ipaddress
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bcrypt
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.drivers.redfish_fence import RedfishFence, RedfishMachine
from moorage.main.local_cluster.ports import free_port
from moorage_testing.waiting import until

PATIENCE_S = 180.0
OFF, ON = "0d0c0b0a-0000-4000-8000-0000000000f0", "0d0c0b0a-0000-4000-8000-0000000000f1"
PASSWORD = "secret"


@dataclass
class Site:
    url: str
    files: Path

    def machine(self, host: str, system: str = "", **changes: object) -> RedfishMachine:
        plain = RedfishMachine(
            host,
            self.url,
            system=f"/redfish/v1/Systems/{system}" if system else "",
            username="moorage",
            password_file=str(self.files / "password"),
            ca_file=str(self.files / "cert.pem"),
        )
        return msgspec.structs.replace(plain, **changes)


def fence(*machines: RedfishMachine, power_off: bool = False) -> RedfishFence:
    known = {each.host: each for each in machines}
    return RedfishFence(known, power_off=power_off, timeout_s=PATIENCE_S, off_within_s=PATIENCE_S)


def certificate(files: Path) -> None:
    """Of 127.0.0.1, signed by itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(addresses, critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (files / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (files / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A controller with two machines, one of which is on."""
    files, port = tmp_path_factory.mktemp("redfish"), free_port()
    certificate(files)
    (files / "password").write_text(f"{PASSWORD}\n")
    (files / "wrong").write_text("wrong")
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    (files / "users").write_text(f"moorage:{hashed}\n")
    systems = [
        {"uuid": uuid, "name": uuid[-2:], "power_state": state, "nics": []}
        for uuid, state in ((OFF, "Off"), (ON, "On"))
    ]
    body = {
        "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
        "SUSHY_EMULATOR_STATE_DIR": str(files),
        "SUSHY_EMULATOR_AUTH_FILE": str(files / "users"),
    }
    (files / "emulator.conf").write_text("".join(f"{name} = {value!r}\n" for name, value in body.items()))
    words = ["--fake", "-i", "127.0.0.1", "-p", str(port), "--config", str(files / "emulator.conf")]
    words += ["--ssl-certificate", str(files / "cert.pem"), "--ssl-key", str(files / "key.pem")]
    with (files / "log").open("wb") as log:
        emulator = subprocess.Popen([sys.executable, "-m", "sushy_tools.emulator.main", *words], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5.0).close()
                break
            except OSError:
                assert emulator.poll() is None, (files / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        made = Site(f"https://127.0.0.1:{port}", files)
        first = made.machine("first", OFF)
        # alone: what the emulator makes at its first request it makes without a lock
        assert fence(first)._is_off(first), (files / "log").read_text()
        yield made
    finally:
        emulator.terminate()
        emulator.wait(PATIENCE_S)


async def test_only_off_counts_as_off(site: Site) -> None:
    asked = fence(
        site.machine("off", OFF),
        site.machine("on", ON),
        site.machine("one of two"),
        site.machine("not there", "nobody"),
        site.machine("wrong password", OFF, password_file=str(site.files / "wrong")),
        site.machine("no password", OFF, password_file=str(site.files / "missing")),
        site.machine("unknown certificate", OFF, ca_file=""),
        site.machine("unchecked certificate", OFF, ca_file="", insecure=True),
        site.machine("nobody listens", OFF, url=f"https://127.0.0.1:{free_port()}"),
    )
    hosts = [*asked._machines, "no machine"]
    said = await asyncio.gather(*(asked.is_off(each) for each in hosts))
    assert {host for host, off in zip(hosts, said, strict=True) if off} == {"off", "unchecked certificate"}
    assert not any(asked.can_switch_off(each) for each in hosts)
    assert not await asked.switch_off("on")


async def test_a_machine_is_switched_off_and_waited_for(site: Site) -> None:
    asked = fence(
        site.machine("on", ON), site.machine("wrong", ON, password_file=str(site.files / "wrong")), power_off=True
    )
    assert not await asked.is_off("on")
    assert [asked.can_switch_off(each) for each in ("on", "another")] == [True, False]
    assert not await asked.switch_off("another")
    assert not await asked.switch_off("wrong")
    assert await asked.switch_off("on")
    assert await asked.is_off("on")


async def test_a_machine_that_goes_off_without_an_answer_is_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that answers late, or refuses because the machine is going off already."""
    asked = fence(site.machine("off", OFF), power_off=True)

    def no_answer(machine: RedfishMachine) -> Any:
        raise TimeoutError

    there, looks = asked._system, list[str]()
    monkeypatch.setattr(
        asked, "_system", lambda machine: looks.append("") or (no_answer if len(looks) == 1 else there)(machine)
    )
    assert await asked.switch_off("off")


async def test_concurrent_requests_to_one_controller_are_shared(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, put = fence(site.machine("off", OFF)), list[RedfishMachine]()
    there = asked._is_off
    monkeypatch.setattr(asked, "_is_off", lambda machine: put.append(machine) or there(machine))
    assert all(await asyncio.gather(*(asked.is_off("off") for _ in range(100))))
    assert len(put) <= 2


async def test_hanging_controllers_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of machines has lost its power: names are looked up, and files read, all the same."""
    hosts = [f"host{number}" for number in range(100)]
    asked, begun, go_on = (
        fence(*(RedfishMachine(each, f"https://{each}") for each in hosts)),
        list[str](),
        threading.Event(),
    )
    monkeypatch.setattr(asked, "_is_off", lambda machine: begun.append(machine.host) or go_on.wait(PATIENCE_S))
    asking = [asyncio.create_task(asked.is_off(each)) for each in hosts]
    try:
        await until(lambda: begun)
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(lambda: True)
    finally:
        go_on.set()
    assert all(await asyncio.gather(*asking))
