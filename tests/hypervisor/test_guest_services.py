"""What guests get from their network: addresses, names, routes and metadata. Most tests use namespaces instead of guests."""

import asyncio
import hashlib
import hmac
import json
import os
import pwd
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.served_networks import SECRET, Host, a_guest, ask, make_host, open_subnet, stations, until, v6

from moorage.drivers.libvirt.metadata_proxy import GUEST_CONNECTIONS_MAX
from moorage.drivers.libvirt.wires import bridge_of
from moorage.model.guest import GuestSpec, VifAddress
from moorage.model.ids import SubnetId
from moorage.model.network import DhcpOption
from moorage_testing.hypervisor.stations import Station
from moorage_testing.waiting import PATIENCE_S

__all__ = ["make_host", "stations"]
pytestmark = pytest.mark.hypervisor


async def test_a_guest_recorded_before_its_bridge_is_served(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """Its record is written first, and ports may be described before it is plugged in."""
    host, guest = make_host(), a_guest(1, "aaaaaaaa", open_subnet(10))
    await host.serve(guest)
    await host.have(guest)
    station = stations("one", guest)
    await station.ask_dhcp(tmp_path)
    assert (await ask(station))[0] == 200


def status_of(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


async def test_what_hears_guests_has_few_rights(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """They run under users of their own, who may not search the host's directory, and serve who comes later all the same."""
    host = make_host()
    one, two = a_guest(1, "aaaaaaaa", open_subnet(10), dns_name="web"), a_guest(2, "bbbbbbbb", open_subnet(10))
    await host.have(one)
    first = stations("one", one)
    await host.have(one, two)
    second = stations("two", two)
    for station, guest in ((first, one), (second, two)):
        assert (await station.ask_dhcp(tmp_path))["ip"] == "10.77.5.10"
        assert json.loads((await ask(station))[1])["headers"]["x-instance-id"] == guest.server
    assert "10.77.5.10" in (await first.run("busybox", "nslookup", "web", "10.77.5.1")).out
    binds, raw, admin = (1 << each for each in (10, 13, 12))
    pids = host.pids()
    assert len(pids) == 3
    for name, pid in pids.items():
        status = status_of(pid)
        user, most = ("nobody", binds | raw) if name == "metadata" else ("dnsmasq", binds | raw | admin)
        expected = pwd.getpwnam(user)
        assert {*status["Uid"].split()} == {str(expected.pw_uid)}, name
        assert {*status["Gid"].split()} == {str(expected.pw_gid)}, name
        assert int(status["CapPrm"], 16) & ~most == 0, name


async def test_each_guest_gets_its_own_metadata(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    """Also to guests of two networks with the same addresses, and without a gateway; whoever asks says nothing of who it is."""
    host = make_host()
    recorder = host.recorder
    closed = VifAddress("10.77.6.10", SubnetId("c"), "10.77.6.0/24")
    one, two = (
        a_guest(1, "aaaaaaaa", open_subnet(10), v6("fd77::f816:3eff:fe77:601", "slaac")),
        a_guest(2, "bbbbbbbb", open_subnet(10)),
    )
    three = a_guest(3, "cccccccc", closed)
    await host.have(one, two, three)
    first, second, third = stations("one", one), stations("two", two), stations("three", three)

    for station, guest in ((first, one), (second, two), (third, three)):
        told = await station.ask_dhcp(tmp_path)
        assert told["ip"] == guest.vifs[0].addresses[0].address
        status, body, _ = await ask(station, "/openstack/latest/meta_data.json?x=1")
        assert status == 200
        asked = json.loads(body)
        assert asked["line"] == "GET /openstack/latest/meta_data.json?x=1 HTTP/1.1"
        heard = asked["headers"]
        signature = hmac.new(SECRET.encode(), guest.server.encode(), hashlib.sha256).hexdigest()
        assert (heard["x-instance-id"], heard["x-tenant-id"]) == (guest.server, "someone")
        assert (heard["x-instance-id-signature"], heard["x-forwarded-for"]) == (signature, told["ip"])
    assert "169.254.169.254/32" in (await third.run("ip", "route")).out or "169.254.169.254 dev" in third.call(
        "ip", "route"
    )

    # It pretends to be another one, by headers and by an address that is nobody's.
    lies = {
        "X-Instance-ID": two.server,
        "X-Tenant-ID": "other",
        "X-Instance-ID-Signature": "00",
        "X-Forwarded-For": "1.2.3.4",
    }
    heard = json.loads((await ask(first, headers=lies))[1])["headers"]
    assert (heard["x-instance-id"], heard["x-tenant-id"], heard["x-forwarded-for"]) == (
        one.server,
        "someone",
        "10.77.5.10",
    )
    second.call("ip", "address", "flush", "dev", "eth0", "scope", "global")
    second.call("ip", "address", "add", "10.77.5.99/24", "dev", "eth0")
    second.call("ip", "route", "add", "default", "via", "10.77.5.1")
    assert (await ask(second))[0] == 404

    # By IPv6 the guest has a link-local address, which is no port's; the kernel first looks whether somebody else has it.
    async def is_usable() -> bool:
        reply = first.call("ip", "-6", "address", "show", "dev", "eth0", "scope", "link")
        return "fe80:" in reply and "tentative" not in reply

    await until(is_usable)
    status, body, _ = await ask(first, host="fe80::a9fe:a9fe%eth0")
    assert (status, json.loads(body)["headers"]["x-instance-id"]) == (200, one.server)

    # Limits: too much, too many, too slow a service, and none.
    status, body, _ = await ask(first, "/openstack/latest/password", method="POST", size=4096)
    assert (status, json.loads(body)["sent"]) == (200, 4096)
    assert (await ask(first, "/openstack/latest/password", method="POST", size=20_000))[0] == 413
    assert (await ask(first, method="DELETE"))[0] == 400
    recorder.slow.clear()
    many = [asyncio.create_task(ask(first)) for _ in range(GUEST_CONNECTIONS_MAX + 4)]
    done, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE_S)
    assert {each.result()[0] for each in done} == {503}
    assert (await ask(third, method="DELETE"))[0] == 400, "another guest is answered meanwhile"
    recorder.slow.set()
    assert sorted(each[0] for each in await asyncio.gather(*many)) == [200] * GUEST_CONNECTIONS_MAX + [503] * 4
    await recorder.close()
    status, _, told = await ask(first)
    assert (status, told["retry-after"]) == (503, "2")
    await recorder.open()

    # The agent starts again: nothing of it is, and the same processes serve who came meanwhile.
    pids = host.pids()
    assert len(pids) == 4
    host, four = make_host(), a_guest(4, "aaaaaaaa", open_subnet(11))
    await host.have(one, two, three, four)
    assert {**host.pids(), bridge_of(four.vifs[0], {}): 0} == {**pids, bridge_of(four.vifs[0], {}): 0}
    fourth = stations("four", four)
    assert (await fourth.ask_dhcp(tmp_path))["ip"] == "10.77.5.11"
    assert json.loads((await ask(fourth))[1])["headers"]["x-instance-id"] == four.server

    # The process ends by itself, and is started again by who looks.
    os.kill(pids["metadata"], signal.SIGKILL)

    async def lost() -> bool:
        return host.services.is_lost()

    await until(lost)
    await host.have(one, two, three, four)
    assert (await ask(first))[0] == 200
    # One network goes and comes again with another bridge.
    await host.have(two)
    await host.have(one, two)
    again = stations("again", one)
    await again.ask_dhcp(tmp_path)
    assert json.loads((await ask(again))[1])["headers"]["x-instance-id"] == one.server


async def test_addresses_names_and_routes(
    tmp_path: Path, make_host: Callable[[], Host], stations: Callable[[str, GuestSpec], Station]
) -> None:
    host = make_host()
    routes = (("10.9.0.0/16", "10.77.5.7"),)
    options = (DhcpOption("tftp-server", "10.1.1.1"), DhcpOption("bad\nname", "x"), DhcpOption("bootfile-name", "a\nb"))
    named = {"dns_name": "web", "dns_domain": "example.test."}
    one = a_guest(
        1,
        "aaaaaaaa",
        open_subnet(10, routes=routes),
        v6("fd77::f816:3eff:fe77:601", "slaac"),
        dhcp_options=options,
        **named,
    )
    two = a_guest(2, "aaaaaaaa", open_subnet(11, routes=routes), dns_name="db", dns_domain="example.test.")
    await host.have(one, two)
    first = stations("one", one)
    told = await first.ask_dhcp(tmp_path)
    assert told["ip"] == "10.77.5.10"
    assert (told["mtu"], told["domain"], told["hostname"], told["dns"]) == ("1450", "example.test", "web", "10.77.5.1")
    assert told["tftp"] == "10.1.1.1"
    routed = first.call("ip", "route")
    assert "10.9.0.0/16 via 10.77.5.7" in routed
    assert "default via 10.77.5.1" in routed
    for name, address in (("db", "10.77.5.11"), ("web.example.test", "10.77.5.10")):
        assert address in (await first.run("busybox", "nslookup", name, "10.77.5.1")).out
    assert "fd77::f816:3eff:fe77:601" in (await first.run("busybox", "nslookup", "web.example.test", "10.77.5.1")).out

    async def advertised() -> bool:
        return "fd77::f816:3eff:fe77:601" in first.call("ip", "-6", "address", "show", "dev", "eth0")

    await until(advertised)
    assert "default via fe80::" in first.call("ip", "-6", "route")

    async def answered() -> bool:
        return (await first.run("ping", "-c1", "-W1", "fd77::1")).code == 0

    await until(answered)
