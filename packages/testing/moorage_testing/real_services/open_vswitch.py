"""A separate Open vSwitch in a network namespace: in userspace, with its own database and sockets, in addition to any that the machine has.

br-under    the device of the wire between hosts, and this host's address there: tunnels of a userspace datapath need it on a bridge of that datapath
"""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

READY_S = 60.0
STOP_S = 20.0
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
UNDERLAY = "br-under"
DATAPATH = "netdev"


def lacks_open_vswitch() -> str:
    """What is missing on this machine, in a sentence; empty: nothing is."""
    programs = ("ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovsdb-tool")
    if not SCHEMA.exists() or not all(shutil.which(each) for each in programs):
        return "no Open vSwitch here: apt-get install openvswitch-switch"
    return ""


@dataclass
class Switch:
    """`start` makes it, `stop` ends its processes; its devices go with the namespace."""

    directory: Path
    namespace: str = ""
    """By its name; empty: this process' own."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def database(self) -> str:
        return f"unix:{self.directory / 'db.sock'}"

    @property
    def environment(self) -> dict[str, str]:
        place = str(self.directory)
        return dict(os.environ) | {"OVS_RUNDIR": place, "OVS_DBDIR": place, "OVS_LOGDIR": place}

    def start(self) -> None:
        """Raises RuntimeError when it does not come up, and CalledProcessError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        conf = self.directory / "conf.db"
        if not conf.exists():
            subprocess.run(["ovsdb-tool", "create", str(conf), str(SCHEMA)], check=True, capture_output=True)
        self._run("ovsdb-server", str(conf), f"--remote=punix:{self.directory / 'db.sock'}")
        self._wait(self.directory / "db.sock", "ovsdb-server")
        self.vsctl("--no-wait", "init")
        self._run("ovs-vswitchd", self.database)
        self.vsctl("--timeout=60", "show")

    @property
    def inside(self) -> list[str]:
        """What a command begins with that is to run where it is."""
        return ["ip", "netns", "exec", self.namespace] if self.namespace else []

    def _run(self, program: str, *words: str) -> None:
        command = [*self.inside, program, *words, "--no-chdir", f"--pidfile={self.directory / program}.pid"]
        with (self.directory / f"{program}.out").open("ab") as out:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    env=self.environment,
                    start_new_session=True,
                )
            )

    def _wait(self, socket: Path, program: str) -> None:
        ends = time.monotonic() + READY_S
        while not socket.is_socket():
            if self.processes[-1].poll() is not None or time.monotonic() > ends:
                raise RuntimeError(
                    f"{program} did not start:\n{(self.directory / f'{program}.out').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def vsctl(self, *words: str) -> str:
        return self.ask("ovs-vsctl", "--timeout=30", f"--db={self.database}", *words)

    def flows(self, bridge: str) -> list[str]:
        said = self.ask(
            "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", f"unix:{self.directory / bridge}.mgmt", "--no-stats"
        )
        return [each.strip() for each in said.splitlines() if "actions=" in each]

    def ask(self, *words: str) -> str:
        """What a command of Open vSwitch prints. Raises RuntimeError when it fails."""
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def bridge(self, name: str) -> None:
        self.vsctl("--may-exist", "add-br", name, "--", "set", "bridge", name, f"datapath_type={DATAPATH}")

    def join(self, device: str, address: str) -> None:
        """This device of the namespace leads to the other hosts, where this one has that address (with its prefix' length)."""
        self.bridge(UNDERLAY)
        self.vsctl("--may-exist", "add-port", UNDERLAY, device)
        for words in (("address", "add", address, "dev", UNDERLAY), ("link", "set", UNDERLAY, "up")):
            subprocess.run([*self.inside, "ip", *words], check=True, capture_output=True)

    def stop(self) -> None:
        for each in reversed(self.processes):
            each.terminate()
        for each in reversed(self.processes):
            try:
                each.wait(STOP_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait(STOP_S)
        self.processes.clear()
