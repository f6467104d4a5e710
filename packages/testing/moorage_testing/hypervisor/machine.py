"""Isolates guests inside this machine: its own network, mounts and host name, and a libvirt daemon that is invisible
outside.

    install     Debian's packages, the real Neutron with its agents and the other services, and the guest; as root, for packages are the machine's
    install cloud-init      and a small cloud image, made of Debian's packages
    probe       a guest in the namespaces, or one sentence that says why none can run here, and status 1
    bench …     the measures of bench.py, in the namespaces
    tempest …   Tempest's tests, which log into guests, by tempest_run.py in the namespaces
    run …       pytest with these arguments; MOORAGE_HYPERVISORS (3) workers, each with namespaces and a daemon of its own. With 0
                pytest itself is in the namespaces, for `-s` and `--pdb`
    python …    Python with these arguments, in the namespaces
    inside …    a command, already there

No module, bridge, firewall rule or directory of the machine is touched but `/usr`, and everything that was started is stopped.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from moorage.main.local_cluster.control_groups import controllers_line, make_group, mount_script
from moorage.main.local_cluster.libvirt_daemon import (
    CAPABILITIES,
    DAEMON_CONF,
    PRIVATE,
    STARTS_WITHIN_S,
    STOPS_WITHIN_S,
    qemu_conf,
)
from moorage_testing.hypervisor.tempest_run import interpreter
from moorage_testing.real_services.install import install as install_neighbours

PACKAGES = (
    "libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "libvirt-dev", "pkg-config", "gcc", "python3-dev",
    "qemu-system-x86", "qemu-utils", "dnsmasq-base", "iproute2", "nftables", "iputils-ping", "util-linux",
    "openvswitch-switch", "iptables", "conntrack", "rabbitmq-server",
    "busybox-static", "cpio", "e2fsprogs", "grub-pc-bin", "grub-common", "fdisk",
    "ovmf", "qemu-guest-agent", "mtools",
)  # fmt: skip
USER = "libvirt-qemu"
"""The daemon looks this name up before it reads which user it is to take; Debian makes it in a package that is not needed."""
GUEST = Path(sys.prefix) / "hypervisor-guest"
CLOUD_GUEST = Path(sys.prefix) / "hypervisor-cloud-guest"
CLOUD_PACKAGES = ("mmdebstrap",)
KNOWN_CAPABILITIES = Path(sys.prefix) / "hypervisor-capabilities"
"""Of QEMU here, from the last run."""
SOCKET = Path("/run/libvirt/libvirt-sock")
WORKERS = 3
"""One more than CI has processors: an emulated guest keeps one busy while it boots, and then tests wait for agents, leases and deadlines."""
NICER_BY = 15
"""Emulated guests take all the processor that they are given. Who has given us a priority already knows what else runs."""
PROCESSES_EACH = 4
"""For each processor: a control group has as much as so many processes of that priority, as when there is none."""
HIERARCHIES = "MOORAGE_CONTROL_GROUP"
"""The variable that names the hierarchies of our control group; empty, or none: there is none."""


def install(*, cloud_init: bool = False, login: bool = False) -> None:
    """What is missing, from the distribution; then the guests, once."""
    if os.geteuid() != 0:
        sys.exit("make test-hypervisor needs root: it installs Debian packages and makes network devices")
    wanted = PACKAGES + (CLOUD_PACKAGES if cloud_init else ())
    lacking = [each for each in wanted if not _is_installed(each)]
    if lacking:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        _run("apt-get", "update", "-qq", env=environment)
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *lacking, env=environment)
    if subprocess.run(["getent", "passwd", USER], stdout=subprocess.DEVNULL, check=False).returncode:
        _run("useradd", "-r", "-U", "-d", "/var/lib/libvirt", "-s", "/usr/sbin/nologin", USER)
    install_neighbours()  # in the namespaces there is no way to PyPI
    here = Path(__file__).parent
    disk, guest = here / "boot_disk.sh", here / "build_guest.sh"
    _build_guest(guest, GUEST / "made-by", disk)
    if login:
        _build_guest(here / "build_login_guest.sh", GUEST / "login-made-by", disk, guest)
    if cloud_init:
        _build_guest(here / "build_cloud_guest.sh", CLOUD_GUEST / "made-by", disk)
    if not (GUEST / "novnc").exists():
        _fetch_novnc(GUEST / "novnc")


def _build_guest(script: Path, made_by: Path, *below: Path) -> None:
    """Once for each version of the script, and of those whose guest it begins with."""
    version = hashlib.sha256(b"".join(each.read_bytes() for each in (script, *below))).hexdigest()
    if not made_by.exists() or made_by.read_text() != version:
        _run("bash", str(script), str(made_by.parent))
        made_by.write_text(version)


def _fetch_novnc(into: Path) -> None:
    """Debian's package, only unpacked: nothing of what it depends on is needed for its pages."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["apt-get", "download", "-qq", "novnc"], check=True, cwd=directory, stderr=subprocess.DEVNULL)
        package = next(Path(directory).glob("novnc_*.deb"))
        _run("dpkg-deb", "-x", str(package), f"{directory}/unpacked")
        shutil.move(f"{directory}/unpacked/usr/share/novnc", into)


def _is_installed(package: str) -> bool:
    words = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout == "installed"


def _run(*words: str, env: dict[str, str] | None = None) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=env)


def probe() -> int:
    """Installs what is missing, and boots a guest."""
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as failure:
        command = " ".join(failure.cmd[:2]) if isinstance(failure, subprocess.CalledProcessError) else failure
        sys.exit(f"no guest can run here: what it needs cannot be installed from Debian ({command})")
    return python("-m", "moorage_testing.hypervisor.probe")


def python(*arguments: str) -> int:
    """Executes Python in namespaces of its own, beside a libvirt daemon of its own, in a control group of its own where one can be made."""
    words = ["unshare", "--net", "--mount", "--uts", "--propagation", "private"]
    command = [sys.executable, "-m", __package__ or "", "inside", sys.executable, *arguments]
    processes = PROCESSES_EACH * (os.cpu_count() or 1)
    group = make_group(f"hypervisor-{os.getpid()}", processes=processes, niceness=os.nice(0) or NICER_BY)
    if group is None:
        return subprocess.run([*words, *command], check=False).returncode
    environment = os.environ | {HIERARCHIES: group.hierarchies}
    try:
        return subprocess.run([*group.enter(), *words, *command], check=False, env=environment).returncode
    finally:
        group.remove()


def pytest(*arguments: str) -> int:
    """Executes tests, each in the worker that is free; those that share what a worker has made in one (tests/hypervisor/conftest.py).

    A worker of pytest-xdist is an interpreter that the controller starts by a command, so the command is what makes namespaces.
    """
    workers = int(os.environ.get("MOORAGE_HYPERVISORS", WORKERS))
    room = tempfile.mkdtemp(prefix="mrg-")  # daemons have sockets in it, whose paths must be short
    Path(room).chmod(0o711)  # QEMU's user reaches guests' files in it
    words = ["-m", "pytest", "--basetemp", f"{room}/t", *arguments]
    if workers == 0:
        status = python(*words)
    else:
        command = shlex.join([sys.executable, "-m", __package__ or "", "python"])
        side_by_side = ["--tx", f"{workers}*popen//python={command}", "--dist", "loadscope", "--no-loadscope-reorder"]
        status = subprocess.run([sys.executable, *words, *side_by_side], check=False).returncode
    if status == 0:
        shutil.rmtree(room, ignore_errors=True)
    return status


def inside(command: list[str]) -> int:
    """Nothing that is mounted or made here is seen outside."""
    if os.nice(0) == 0:
        os.nice(NICER_BY)
    _run("ip", "link", "set", "lo", "up")
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    hierarchies = os.environ.get(HIERARCHIES, "")
    _run("sh", "-ec", mount_script(hierarchies, str(os.getpid())))
    Path("/run/netns").mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")  # names of namespaces are this machine's alone, too
    base = Path(tempfile.mkdtemp(prefix="moorage-hypervisor-"))
    try:
        for place in PRIVATE:
            own = base / place.strip("/").replace("/", "-")
            own.mkdir()
            Path(place).mkdir(parents=True, exist_ok=True)
            _run("mount", "--bind", str(own), place)
        Path("/etc/libvirt/libvirtd.conf").write_text(DAEMON_CONF)
        Path("/etc/libvirt/qemu.conf").write_text(qemu_conf() + controllers_line(hierarchies))
        if KNOWN_CAPABILITIES.is_dir():
            shutil.copytree(KNOWN_CAPABILITIES, CAPABILITIES)
        with daemon():
            environment = os.environ | {"MOORAGE_TEST_GUEST": str(GUEST), "MOORAGE_HYPERVISOR": "1"}
            environment["MOORAGE_TEST_CLOUD_IMAGE"] = str(CLOUD_GUEST / "cloud.qcow2")
            return subprocess.run(command, check=False, env=environment).returncode
    finally:
        if CAPABILITIES.is_dir():
            shutil.copytree(CAPABILITIES, KNOWN_CAPABILITIES, dirs_exist_ok=True)
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
    quiet = subprocess.DEVNULL  # the output of a worker is its way to the controller
    process = subprocess.Popen(words, stdin=quiet, stdout=quiet, start_new_session=True)
    ends = time.monotonic() + STARTS_WITHIN_S
    while not SOCKET.exists() or subprocess.run(["virsh", "-q", "uri"], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > ends:
            sys.exit("the libvirt daemon did not start; see /var/log/libvirt/libvirtd.log of its namespace")
        time.sleep(0.1)
    return process


def main(arguments: list[str]) -> int:
    match arguments:
        case ["install"] | ["install", "cloud-init"]:
            install(cloud_init=len(arguments) > 1)
            return 0
        case ["probe"]:
            return probe()
        case ["bench", *rest]:
            return python("-m", "moorage_testing.hypervisor.bench", *rest)
        case ["tempest", *rest]:
            install(login=True)
            interpreter()  # in the namespaces there is no way to PyPI
            return python("-m", "moorage_testing.hypervisor.tempest_run", *rest)
        case ["run", *rest]:
            return pytest(*rest)
        case ["python", *rest]:
            return python(*rest)
        case ["inside", *command]:
            return inside(command)
        case _:
            print(__doc__)  # noqa: T201 - a command
            return 2
