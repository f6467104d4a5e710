"""A machine for guests inside this one: network, mounts and host name of its own, and a libvirt daemon that nobody else sees.

    install     Debian's packages and the guest; as root, for they are the machine's
    run …       pytest with these arguments, in the namespaces
    inside …    the same, already there

No module, bridge, firewall rule or directory of the machine is touched but `/usr`, and everything that was started is stopped.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = (
    "libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "libvirt-dev", "pkg-config", "gcc", "python3-dev",
    "qemu-system-x86", "qemu-utils", "dnsmasq-base", "iproute2", "iputils-ping", "util-linux",
    "busybox-static", "cpio", "e2fsprogs", "grub-pc-bin", "grub-common", "fdisk", "binutils",
)  # fmt: skip
USER = "libvirt-qemu"
"""The daemon looks this name up before it reads which user it is to take; Debian makes it in a package that is not needed."""
GUEST = Path(sys.prefix) / "hypervisor-guest"
PRIVATE = ("/etc/libvirt", "/var/lib/libvirt", "/run/libvirt", "/var/log/libvirt", "/var/cache/libvirt")
DAEMON_CONF = """\
listen_tls = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
"""
SOCKET = Path("/run/libvirt/libvirt-sock")
STARTS_WITHIN_S, STOPS_WITHIN_S = 60.0, 30.0
NICER_BY = 15
"""Emulated guests take all the processor that they are given."""


def install() -> None:
    """What is missing, from the distribution; then the guest, once."""
    if os.geteuid() != 0:
        sys.exit("make test-hypervisor needs root: it installs Debian packages and makes network devices")
    lacking = [each for each in PACKAGES if not _is_installed(each)]
    if lacking:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        _run("apt-get", "update", "-qq", env=environment)
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *lacking, env=environment)
    if subprocess.run(["getent", "passwd", USER], stdout=subprocess.DEVNULL, check=False).returncode:
        _run("useradd", "-r", "-U", "-d", "/var/lib/libvirt", "-s", "/usr/sbin/nologin", USER)
    if not (GUEST / "guest.qcow2").exists():
        _run("bash", str(Path(__file__).with_name("build_guest.sh")), str(GUEST))


def _is_installed(package: str) -> bool:
    words = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "installed"


def _run(*words: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=env)


def run(arguments: list[str]) -> int:
    words = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
    inside = [sys.executable, "-m", __package__ or "", "inside", *arguments]
    return subprocess.run([*words, *inside], check=False).returncode


def inside(arguments: list[str]) -> int:
    """Nothing that is mounted or made here is seen outside."""
    os.nice(NICER_BY)
    _run("ip", "link", "set", "lo", "up")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    base = Path(tempfile.mkdtemp(prefix="moorage-hypervisor-"))
    try:
        for place in PRIVATE:
            own = base / place.strip("/").replace("/", "-")
            own.mkdir()
            Path(place).mkdir(parents=True, exist_ok=True)
            _run("mount", "--bind", str(own), place)
        Path("/etc/libvirt/libvirtd.conf").write_text(DAEMON_CONF)
        Path("/etc/libvirt/qemu.conf").write_text(QEMU_CONF)
        with daemon():
            environment = os.environ | {"MOORAGE_TEST_GUEST": str(GUEST), "MOORAGE_HYPERVISOR": "1"}
            return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False, env=environment).returncode
    finally:
        end_all_in_here()
        for place in PRIVATE:
            subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(base, ignore_errors=True)


def end_all_in_here() -> None:
    """Of this network's namespace, which is ours alone: what a test that failed left running."""
    here = os.readlink("/proc/self/ns/net")
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(each.name) != os.getpid() and os.readlink(each / "ns/net") == here:
                os.kill(int(each.name), signal.SIGTERM)


@contextlib.contextmanager
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """Runs until the end; guests that were left are ended too, and nobody else's."""
    process = start_daemon()
    try:
        yield process
    finally:
        for file in [*Path("/run/libvirt/qemu").glob("*.pid"), Path("/run/libvirt/libvirtd.pid")]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOPS_WITHIN_S)


def start_daemon() -> subprocess.Popen[bytes]:
    """Answers when it is ready; one that was killed before has left its socket and pid file."""
    for file in (SOCKET, Path("/run/libvirt/libvirtd.pid")):
        file.unlink(missing_ok=True)
    words = ["/usr/sbin/libvirtd", "--pid-file", "/run/libvirt/libvirtd.pid"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    ends = time.monotonic() + STARTS_WITHIN_S
    while not SOCKET.exists() or subprocess.run(["virsh", "-q", "uri"], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > ends:
            sys.exit("the libvirt daemon did not start; see /var/log/libvirt/libvirtd.log of its namespace")
        time.sleep(0.1)
    return process


SECOND_DAEMON_CONF = """\
host_uuid = "5f000000-0000-4000-8000-{number:012d}"
listen_tls = 0
listen_tcp = 1
listen_addr = "{address}"
auth_tcp = "none"
"""
SECOND_QEMU_CONF = """\
vnc_listen = "{address}"
migration_address = "{address}"
migration_port_min = {first}
migration_port_max = {last}
"""
ENTER = """\
set -e
mount --make-rprivate /
for place in {places}; do
  mkdir -p "{base}/$(echo "${{place#/}}" | tr / -)"
  mount --bind "{base}/$(echo "${{place#/}}" | tr / -)" "$place"
done
hostname {name}
exec /usr/sbin/libvirtd --listen --pid-file /run/libvirt/libvirtd.pid
"""


@dataclass
class Daemon:
    """One libvirt daemon more, with mounts, a host name and an address of its own: other daemons reach it by TCP."""

    base: Path
    number: int
    address: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.base}/run-libvirt/libvirt-sock"

    @property
    def run(self) -> Path:
        """Its `/run/libvirt`."""
        return self.base / "run-libvirt"

    def start(self) -> None:
        """Answers when it is ready. Raises RuntimeError."""
        first = 49_152 + self.number * 100
        etc = self.base / "etc-libvirt"
        etc.mkdir(parents=True, exist_ok=True)
        own = SECOND_DAEMON_CONF.format(number=self.number, address=self.address)
        (etc / "libvirtd.conf").write_text(DAEMON_CONF.replace("listen_tls = 0\n", "") + own)
        own = SECOND_QEMU_CONF.format(address=self.address, first=first, last=first + 99)
        (etc / "qemu.conf").write_text(QEMU_CONF + own)
        for file in (self.run / "libvirt-sock", self.run / "libvirtd.pid"):
            file.unlink(missing_ok=True)
        script = ENTER.format(places=" ".join(PRIVATE), base=self.base, name=f"host{self.number}")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--uts", "bash", "-c", script], stdin=subprocess.DEVNULL, start_new_session=True
        )
        ends = time.monotonic() + STARTS_WITHIN_S
        ask = ["virsh", "-q", "-c", self.uri, "uri"]
        while subprocess.run(ask, capture_output=True, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the libvirt daemon below {self.base} did not start")
            time.sleep(0.1)

    def kill(self) -> None:
        """`kill -9`; its guests run on."""
        os.kill(int((self.run / "libvirtd.pid").read_text()), signal.SIGKILL)
        assert self.process is not None
        self.process.wait(STOPS_WITHIN_S)

    def stop(self) -> None:
        """With its guests."""
        for file in [*(self.run / "qemu").glob("*.pid"), self.run / "libvirtd.pid"]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOPS_WITHIN_S)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["install"]:
            install()
            return 0
        case ["run", *rest]:
            return run(rest)
        case ["inside", *rest]:
            return inside(rest)
        case _:
            print(__doc__)  # noqa: T201 - a command
            return 2
