"""TLS of live migration with real guests: nothing of theirs is readable on the wire, and hosts take one another's guests only."""

import asyncio
import datetime
import socket
import ssl
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.helpers.libvirt_host import ImageFiles, a_spec, says
from tests.helpers.live_pair import (
    CLEAR,
    a_host,
    certified,
    common_name,
    ends,
    running,
    sent,
    started,
    when,
)
from tests.helpers.real_guests import ONE, call, types
from tests.helpers.wire_capture import WireCapture, captured

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.main.local_cluster.certificates import CertificateAuthority, CertificateFiles
from moorage.main.local_cluster.files import tables
from moorage.main.local_cluster.libvirt_daemon import Daemon, DaemonCertificates
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.live_migration import LiveSource, LiveState
from moorage.model.private_files import private_directory
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor

HERE, THERE, NAME = "127.0.0.2", "127.0.0.3", "there.test"
"""The other host's certificate has its name and no address."""
MARKER = "a-text-of-the-guest-0123456789"
WRITES = f"m={MARKER[:9]}; yes $m{MARKER[9:]} | head -c 2097152 >/dev/vdb; sync; echo wro$((1+1))"
"""The text is written in two parts, so that the console has it nowhere."""
GUEST_PORTS = range(49_152, 65_536)
"""Where QEMU listens for memory and disks."""
SOME_BYTES = 2 << 20
"""Of what is written, at the least: that much is sent of the disk and of the memory."""
TLS_PORT, CLEAR_PORT = 16_514, 16_509
"""libvirt's own."""
OVER = datetime.timedelta(minutes=-1)

Pair = tuple[LibvirtDriver, LibvirtDriver]
Refused = Callable[[list[Daemon], CertificateAuthority, CertificateAuthority], None]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In this process' namespace of mounts, and those that are made from it, the name is known."""
    hosts = tmp_path_factory.mktemp("names") / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{THERE} {NAME}\n")
    call("mount", "--bind", str(hosts), "/etc/hosts")
    yield
    call("umount", "/etc/hosts")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, names: None) -> Iterator[list[Daemon]]:
    made = [
        Daemon(tmp_path_factory.mktemp("daemon"), number, address) for number, address in enumerate((HERE, THERE), 2)
    ]
    with running(made):
        yield made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, daemons: list[Daemon]) -> CertificateAuthority:
    """The daemons are started again, with its certificates."""
    made = certified(tmp_path_factory.mktemp("pki"), daemons, [HERE, NAME])
    for each in daemons:
        each.kill()
        each.start()
    return made


@pytest.fixture
async def pair(daemons: list[Daemon], tmp_path: Path, images: ImageFiles) -> AsyncIterator[Pair]:
    """By TLS if the daemons have certificates."""
    first = a_host(daemons[0], tmp_path / "host2", images)
    by_name = {"live_uri": f"qemu+tls://{NAME}/system"} if daemons[1].certificates else {}
    second = a_host(daemons[1], tmp_path / "host3", images, **by_name)
    async with started(daemons, (first, second)):
        yield first, second


async def on_the_wire(pair: Pair) -> WireCapture:
    """Of a guest that moves with its local disks, after it has written the text to one of them."""
    first, second = pair
    spec = a_spec(ONE, ephemeral_gib=1)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    await types(first, WRITES, "wro2")
    with captured("lo", MARKER.encode()) as capture:
        await sent(first, second, spec, "move")
        await when(first, "move", lambda now: now.state is LiveState.SWITCHED)
    assert await second.land_live(spec, "move") is PowerState.RUNNING
    await types(second, f"head -c {len(MARKER)} /dev/vdb", MARKER)
    assert not capture.lost
    return capture


def carried(capture: WireCapture) -> list[int]:
    """The ports that were sent as much as the guest wrote."""
    return sorted(port for port, sent in capture.sent.items() if port in GUEST_PORTS and sent >= SOME_BYTES)


async def test_in_the_clear_its_memory_and_disks_are_readable(pair: Pair) -> None:
    """So the capture finds what is there. Its daemons have no certificates yet."""
    assert pair[0]._settings.live_uri == CLEAR
    capture = await on_the_wire(pair)
    assert sorted(capture.found) == carried(capture)
    assert len(capture.found) == 2, "its memory, and its disks"


async def test_by_tls_nothing_of_it_is_readable(authority: CertificateAuthority, pair: Pair) -> None:
    capture = await on_the_wire(pair)
    assert len(carried(capture)) == 2, "its memory, and its disks"
    assert not capture.found


def shows(daemon: Daemon, trusted: Path, own: CertificateFiles) -> None:
    """What the host shows from now on as a client; and its QEMU, as a server too. Its daemon shows what it did."""
    DaemonCertificates(trusted, own, ()).lay_out(daemon.pki)


def of_another_authority(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    both = other.file.with_name("both.pem")
    both.write_bytes(ours.file.read_bytes() + other.file.read_bytes())
    shows(daemons[0], both, other.issue(common_name(daemons[0]), [HERE]))


def of_another_name(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    shows(daemons[0], ours.file, ours.issue("stranger", [HERE]))


def expired(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    shows(daemons[0], ours.file, ours.issue("old", [HERE], OVER))


def qemu_of_another_authority(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    """The daemon is let in, and its QEMU is not."""
    of_another_authority(daemons, ours, other)
    right = daemons[0].certificates
    assert right is not None
    for name, file in (("clientcert.pem", right.own.cert), ("clientkey.pem", right.own.key)):
        (daemons[0].pki / name).unlink()
        (daemons[0].pki / name).symlink_to(file)


def there_of_another_authority(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    shows(daemons[1], other.file, other.issue(common_name(daemons[1]), [NAME]))


def there_for_another_host(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    shows(daemons[1], ours.file, ours.issue("elsewhere", ["elsewhere.test"]))


def there_expired(daemons: list[Daemon], ours: CertificateAuthority, other: CertificateAuthority) -> None:
    shows(daemons[1], ours.file, ours.issue("older", [NAME], OVER))


TURNED_AWAY = "the daemon there does not take this host's certificate"
REFUSED: dict[Refused, str] = {
    of_another_authority: TURNED_AWAY,
    of_another_name: TURNED_AWAY,
    expired: "clientcert.pem has expired",
    qemu_of_another_authority: "TLS channel",
    there_of_another_authority: "The certificate hasn't got a known issuer",
    there_for_another_host: "Certificate does not match the hostname there.test",
    there_expired: "server-cert.pem has expired",
}


async def test_who_has_no_valid_certificate_of_theirs_sends_nothing(
    authority: CertificateAuthority, daemons: list[Daemon], pair: Pair, tmp_path: Path
) -> None:
    first, second = pair
    other = CertificateAuthority(tmp_path / "other", "another")
    spec = a_spec(ONE, root_gib=0)
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: ready")
    for number, (case, why) in enumerate(REFUSED.items()):
        move = f"move-{number}"
        case(daemons, authority, other)
        await sent(first, second, spec, move)
        now = await ends(first, move, LiveState.FAILED)
        assert why in now.why, case
        assert await second.guests() == {ONE: PowerState.PAUSED}, "only its place"
        await second.drop_live(ONE, move)
        assert (await first.guests(), await second.guests()) == ({ONE: PowerState.RUNNING}, {}), case
        await types(first, f"echo con$((40+{number}))", f"con4{number}")
        for each in daemons:
            assert each.certificates is not None
            each.certificates.lay_out(each.pki)

    # A daemon that shows another authority's certificate is not one of theirs.
    right = daemons[1].certificates
    daemons[1].certificates = DaemonCertificates(other.file, other.issue("host3", [NAME]), ["host2"])
    daemons[1].kill()
    await asyncio.to_thread(daemons[1].start)
    await sent(first, second, spec, "unknown")
    assert "Failed to verify peer's certificate" in (await ends(first, "unknown", LiveState.FAILED)).why
    await second.drop_live(ONE, "unknown")
    daemons[1].certificates = right
    daemons[1].kill()
    await asyncio.to_thread(daemons[1].start)

    # One that takes guests in the clear gets none.
    settings = second._settings
    second._settings = msgspec.structs.replace(settings, live_uri=CLEAR)
    target = await second.live_target(spec, await first.live_source(ONE), None)
    await second.prepare_live(spec, "clear")
    with pytest.raises(HostFailed, match="in the clear only"):
        await first.send_live(ONE, target, "clear")
    await second.drop_live(ONE, "clear")
    second._settings = settings

    await sent(first, second, spec, "last")
    await when(first, "last", lambda now: now.state is LiveState.SWITCHED)
    assert await second.land_live(spec, "last") is PowerState.RUNNING


def answer_to(daemon: Daemon, authority: CertificateAuthority, own: CertificateFiles | None) -> bytes:
    """The byte with which a daemon lets a client in; empty: it does not. Unlike libvirt's client this one shows its certificate to whomever."""
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    with socket.create_connection((daemon.address, TLS_PORT), PATIENCE_S) as plain, context.wrap_socket(plain) as shown:
        try:
            return shown.recv(1)
        except (ssl.SSLError, ConnectionError):
            return b""


async def test_a_daemon_takes_the_others_of_its_list_only(
    authority: CertificateAuthority, daemons: list[Daemon], tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path / "other", "another")
    first, second = daemons
    assert first.certificates is not None
    for own, answer in (
        (first.certificates.own, b"\1"),
        (None, b""),
        (other.issue("host2"), b""),
        (authority.issue("stranger"), b""),
        (authority.issue("host2-old", good_for=OVER), b""),
    ):
        assert await asyncio.to_thread(answer_to, second, authority, own) == answer, own
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(second.address, CLEAR_PORT)
    files = [each for each in second.pki.iterdir() if "key" in each.name]
    assert files
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


@pytest.mark.usefixtures("authority")
async def test_a_host_without_tls_takes_no_guests_that_run(
    daemons: list[Daemon], tmp_path: Path, images: ImageFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """It does all else, says why, and takes them as soon as what was missing is there."""
    room, empty = tmp_path / "host2", str(tmp_path / "empty")
    for settings, whys in (
        ({"live_pki": empty}, (f"Cannot read CA certificate '{empty}/cacert.pem'", f"{empty} has no ca-cert.pem")),
        ({"live_uri": f"qemu+tls://{NAME}/system"}, ("server-cert.pem: Hostname mismatch",)),
        ({"live_uri": "qemu+tls://{address}:1/system"}, ("Connection refused",)),
    ):
        driver = a_host(daemons[0], room, images, **settings)
        caplog.clear()
        await driver.start()
        with pytest.raises(HostFailed, match="its TLS does not work") as refused:
            await driver.live_target(a_spec(ONE), LiveSource({}), None)
        for why in whys:
            assert why in refused.value.private
            assert why in caplog.text
        driver._settings = a_host(daemons[0], room, images)._settings
        assert driver._machine is not None
        same = {"arch": driver._machine.arch, "virt_type": driver._machine.virt_type}
        assert (await driver.live_target(a_spec(ONE), LiveSource(same, "QEMU"), None)).where
        await driver.close()
    without = a_host(daemons[0], room, images, live_pki=empty, live_uri="")
    await without.start()
    with pytest.raises(HostFailed, match="takes no guests while they run"):
        await without.live_target(a_spec(ONE), LiveSource({}), None)
    await without.close()

    file = tmp_path / "agent.toml"
    told = {"uri": daemons[0].uri, "migration_address": daemons[0].address, "live_pki": empty}
    file.write_text(tables({"": {"data_dir": str(tmp_path / "data")}, "libvirt": told}))
    private_directory(tmp_path / "data/hosts/host2")
    command = (sys.executable, "-m", "moorage", "agent", "clean", "--config", str(file), "--host", "host2", "--yes")
    assert "0 guests of host2 are gone" in await asyncio.to_thread(call, *command)
