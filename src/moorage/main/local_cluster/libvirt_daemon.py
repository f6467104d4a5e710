"""Starts a separate libvirt daemon with its own mounts, host name, network namespace and address."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.drivers.libvirt.system_users import SystemUser
from moorage.main.local_cluster.certificates import CertificateFiles
from moorage.main.local_cluster.control_groups import MACHINE, ControlGroup, controllers_line, make_group, mount_script
from moorage.main.local_cluster.qemu_user import let_in

PRIVATE = ("/etc/libvirt", "/var/lib/libvirt", "/run/libvirt", "/var/log/libvirt", "/var/cache/libvirt")
DAEMON_CONF = """\
listen_tls = 0
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
min_workers = 20
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""
"""`min_workers`: as many threads as there may be. libvirt up to 9.0, at least, starts no more of them once a call waits for one
(`virThreadPoolSendJob` subtracts numbers without a sign): six calls that wait for a guest that hangs would make all others wait."""
QEMU_CONF = """\
user = "{user}"
group = "{group}"
dynamic_ownership = {gives_files}
remember_owner = 0
security_driver = "none"
namespaces = []
stdio_handler = "file"
"""
"""`dynamic_ownership`: libvirt gives QEMU's user the files of a guest while it runs; root needs none of that."""
CAPABILITIES = Path("/var/cache/libvirt/qemu/capabilities")
"""What a daemon has found out about each QEMU, in four seconds; it looks itself whether that still holds."""
STARTS_WITHIN_S, STOPS_WITHIN_S = 180.0, 30.0
SOCKET_BYTES_MAX = 107
"""Of the path of a UNIX socket on Linux (unix(7))."""
SECOND_DAEMON_CONF = """\
host_uuid = "5f000000-0000-4000-8000-{number:012d}"
listen_addr = "{address}"
"""
CLEAR_DAEMON_CONF = """\
listen_tls = 0
listen_tcp = 1
auth_tcp = "none"
"""
TLS_DAEMON_CONF = """\
listen_tls = 1
listen_tcp = 0
auth_tls = "none"
ca_file = "{pki}/cacert.pem"
cert_file = "{pki}/server-cert.pem"
key_file = "{pki}/server-key.pem"
tls_allowed_dn_list = [{peers}]
"""
"""`auth_tls`: nothing is asked beyond the certificate."""
SECOND_QEMU_CONF = """\
vnc_listen = "{address}"
migration_address = "{address}"
migration_port_min = {first}
migration_port_max = {last}
"""
TLS_QEMU_CONF = """\
migrate_tls_x509_cert_dir = "{pki}"
migrate_tls_x509_verify = 1
migrate_tls_force = 1
"""
ENTER = """\
set -e
umask 022
mount --make-rprivate /
for place in {places}; do
  own="{base}/$(echo "${{place#/}}" | tr / -)"
  mkdir -p "$own"
  chmod 0755 "$own"
  mount --bind "$own" "$place"
done
{devices}hostname {name}
{groups}exec /usr/sbin/libvirtd --listen --pid-file /run/libvirt/libvirtd.pid
"""
OWN_KVM = """\
if [ -c /dev/kvm ] && mknod "{base}/kvm" c $(stat -c "0x%t 0x%T" /dev/kvm); then
  chown root:{group} "{base}/kvm"
  chmod 0660 "{base}/kvm"
  mount --bind "{base}/kvm" /dev/kvm
fi
"""
"""Where QEMU's user may not open `/dev/kvm`, libvirt 9 probes each QEMU again for every call. Without the right to make devices it does."""


def qemu_conf(user: SystemUser | None = None) -> str:
    """Return the file for a QEMU that runs under this user; None: root."""
    name, group = ("root", "root") if user is None else (user.name, user.group)
    return QEMU_CONF.format(user=name, group=group, gives_files=int(user is not None))


@dataclass(frozen=True)
class DaemonCertificates:
    """The certificate that a daemon, and QEMU of its host, has as a server and as a client."""

    authority: Path
    own: CertificateFiles
    peers: Sequence[str]
    """Subjects of the certificates that are taken, as common names."""

    def lay_out(self, pki: Path, reader: SystemUser | None = None) -> None:
        """Give a directory the names that libvirt and QEMU look for; others that it had are replaced. `reader`: QEMU's user, if it is not root."""
        pki.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reader is not None:
            let_in(reader, [pki, self.own.key.parent], [self.authority, self.own.cert, self.own.key])
        of_client = {"clientcert.pem": self.own.cert, "clientkey.pem": self.own.key}  # libvirt's names
        of_qemu = {
            f"{end}-{part}.pem": file
            for end in ("client", "server")
            for part, file in (("cert", self.own.cert), ("key", self.own.key))
        }
        for name, file in {"cacert.pem": self.authority, "ca-cert.pem": self.authority, **of_client, **of_qemu}.items():
            (pki / name).unlink(missing_ok=True)
            (pki / name).symlink_to(file)


@dataclass
class Daemon:
    """A separate libvirt daemon with its own mounts, host name and address, which other daemons reach."""

    base: Path
    number: int
    address: str
    namespace: str = ""
    """Name of its network namespace; empty: that of this process."""
    certificates: DaemonCertificates | None = None
    """None: it is reached by TCP in the clear, and guests are sent so."""
    user: SystemUser | None = None
    """QEMU's; None: root. It must be able to search all directories above `base`."""
    limits_processors: bool = True
    """False: it makes no control groups, as on a machine without the controller `cpu`."""
    process: subprocess.Popen[bytes] | None = None
    group: ControlGroup | None = None
    """Of its guests and itself; None: the machine has none, and no guest has shares or a quota of processors."""

    @property
    def socket(self) -> Path:
        return self.run / "libvirt-sock"

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def run(self) -> Path:
        """The directory that is the daemon's `/run/libvirt`."""
        return self.base / "run-libvirt"

    @property
    def groups_of_guests(self) -> Sequence[Path]:
        """The directories in which the daemon makes control groups."""
        return () if self.group is None else [each / MACHINE for each in self.group.directories.values()]

    @property
    def pki(self) -> Path:
        """The directory of its certificates: of libvirt's server and client, and of QEMU's."""
        return self.base / "pki"

    def start(self) -> None:
        """Start the daemon; returns when it is ready. Raises RuntimeError when it does not start, or when the path of its socket is too long."""
        if (bytes_of_path := len(os.fsencode(self.socket))) > SOCKET_BYTES_MAX:
            raise RuntimeError(
                f"the socket {self.socket} has a path of {bytes_of_path} bytes, and {SOCKET_BYTES_MAX} are the most: choose a directory with a shorter path"
            )
        self.group = make_group(self.namespace or f"daemon{self.number}") if self.limits_processors else None
        self._configure()
        for file in (self.socket, self.run / "libvirtd.pid", self.base / "kvm"):
            file.unlink(missing_ok=True)
        groups = mount_script(self._hierarchies, "$$")
        devices = "" if self.user is None else OWN_KVM.format(base=self.base, group=self.user.gid)
        name = f"host{self.number}"
        script = ENTER.format(places=" ".join(PRIVATE), base=self.base, name=name, devices=devices, groups=groups)
        prefix = [] if self.group is None else self.group.enter()
        prefix += ["ip", "netns", "exec", self.namespace] if self.namespace else []
        self.process = subprocess.Popen(
            [*prefix, "unshare", "--mount", "--uts", "bash", "-c", script],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        ends = time.monotonic() + STARTS_WITHIN_S
        probe = ["virsh", "-q", "-c", self.uri, "uri"]
        while subprocess.run(probe, capture_output=True, check=False).returncode:
            if self.process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the libvirt daemon below {self.base} did not start")
            time.sleep(0.1)

    @property
    def _hierarchies(self) -> str:
        return "" if self.group is None else self.group.hierarchies

    def _configure(self) -> None:
        first = 49_152 + self.number * 100
        etc = self.base / "etc-libvirt"
        etc.mkdir(parents=True, exist_ok=True)
        if CAPABILITIES.is_dir():
            shutil.copytree(CAPABILITIES, self.base / "var-cache-libvirt/qemu/capabilities", dirs_exist_ok=True)
        transport, of_qemu = CLEAR_DAEMON_CONF, ""
        if self.certificates is not None:
            self.certificates.lay_out(self.pki, self.user)
            peers = ", ".join(f'"CN={each}"' for each in self.certificates.peers)
            transport = TLS_DAEMON_CONF.format(pki=self.pki, peers=peers)
            of_qemu = TLS_QEMU_CONF.format(pki=self.pki)
        own = SECOND_DAEMON_CONF.format(number=self.number, address=self.address)
        (etc / "libvirtd.conf").write_text(DAEMON_CONF.replace("listen_tls = 0\n", "") + own + transport)
        own = SECOND_QEMU_CONF.format(address=self.address, first=first, last=first + 99)
        (etc / "qemu.conf").write_text(qemu_conf(self.user) + controllers_line(self._hierarchies) + own + of_qemu)

    def kill(self) -> None:
        """Kill the daemon with SIGKILL; its guests run on."""
        os.kill(int((self.run / "libvirtd.pid").read_text()), signal.SIGKILL)
        assert self.process is not None
        self.process.wait(STOPS_WITHIN_S)

    def stop(self) -> None:
        """Stop the daemon and its guests."""
        for file in [*(self.run / "qemu").glob("*.pid"), self.run / "libvirtd.pid"]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGTERM)
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOPS_WITHIN_S)
        if self.group is not None:
            self.group.remove()
