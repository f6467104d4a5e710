"""Neutron's own agents in network namespaces of this machine, each with an Open vSwitch of its own: `neutron-openvswitch-agent`, `neutron-dhcp-agent`.

They meet Neutron over a RabbitMQ. They run as root and call what they need of root's through `env`, in the place of a rootwrap.  They enter
the namespace of the network alone (`nsenter`): what one of them mounts below `/run/netns` the next one finds, which `ip netns exec` would hide.
"""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage_testing.real_services.open_vswitch import DATAPATH, Switch
from moorage_testing.real_services.settings import Sections, write_file

STOP_S = 30.0
SETTLES_S = 60.0
WIRING = "neutron-openvswitch-agent"
CLEANED = "Cleaning stale br-tun flows"
"""In its log, once after each start."""


@dataclass
class NeutronHost:
    """The agents of one host."""

    name: str
    """As Neutron and Moorage call the host."""
    namespace: str
    directory: Path
    venv: Path
    broker: str
    """The URL of RabbitMQ, as it is reached in the namespace."""
    tunnel_address: str
    firewall: str = "openvswitch"
    mappings: str = ""
    """Physical networks and their bridges, in Neutron's notation."""
    switch: Switch = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _began: int = 0
    """Where the log of the agent that runs begins, in bytes."""

    def __post_init__(self) -> None:
        self.switch = Switch(self.directory / "ovs", self.namespace)

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def start_agent(self) -> None:
        """`neutron-openvswitch-agent`; it runs when this returns, and is ready when Neutron has its first report."""
        log = self.log(WIRING)
        self._began = log.stat().st_size if log.exists() else 0
        self._start(WIRING, self._wiring())

    def settle_agent(self) -> None:
        """Returns when the agent has removed the flows of the one before.

        It does so after its second pass over ports, and Neutron 29 removes new flows along with them: those that let the members of a
        security group in which were added while it renewed the flows of a port (`_update_flows_for_port` writes them with a cookie that is
        given back afterwards). They stay away until the group's members change again, so no guest may come before. Raises TimeoutError.
        """
        if CLEANED in self._logged():
            return
        self._await("Agent initialized successfully")  # it has made its bridge
        devices = ("settles1", "settles2")  # a port that it knows already, and one that makes it look again
        for device in devices:
            port = str(uuid.uuid4())
            own = (f"external_ids:iface-id={port}", "external_ids:attached-mac=fa:16:3e:00:00:01")
            self.switch.vsctl("add-port", "br-int", device, "--", "set", "Interface", device, "type=internal", *own)
            self._await(port)
        self._await(CLEANED)
        for device in devices:
            self.switch.vsctl("del-port", "br-int", device)

    def _logged(self) -> str:
        """What the agent has logged since its last start."""
        with self.log(WIRING).open(errors="replace") as log:
            log.seek(self._began)
            return log.read()

    def _await(self, words: str) -> None:
        ends = time.monotonic() + SETTLES_S
        while words not in self._logged():
            if time.monotonic() > ends:
                raise TimeoutError(f"{WIRING} on {self.name} has not logged {words!r} in {SETTLES_S:g} s")
            time.sleep(0.1)

    def start_dhcp(self) -> None:
        """`neutron-dhcp-agent`, which makes a namespace and runs a dnsmasq for each network."""
        as_root = self.directory / "dnsmasq.conf"
        as_root.write_text("user=root\n")  # nobody else may search the directories above its files
        own: Mapping[str, str | int] = {"dnsmasq_config_file": str(as_root), "resync_interval": 5}
        self._start("neutron-dhcp-agent", {"DEFAULT": own, "ovs": {"ovsdb_connection": self.switch.database}})

    def _common(self) -> Sections:
        state = self.directory / "state"
        return {
            "DEFAULT": {
                "host": self.name,
                "transport_url": self.broker,
                "state_path": str(state),
                "use_stderr": "true",
            },
            "oslo_concurrency": {"lock_path": str(state / "lock")},
            "agent": {"root_helper": "env", "report_interval": 10},
        }

    def _wiring(self) -> Sections:
        return {
            "ovs": {
                "ovsdb_connection": self.switch.database, "datapath_type": DATAPATH,
                "local_ip": self.tunnel_address, "bridge_mappings": self.mappings,
                "resource_provider_default_hypervisor": self.name,
            },
            "agent": {"tunnel_types": "vxlan"},
            "securitygroup": {"firewall_driver": self.firewall, "enable_security_group": "true", "enable_ipset": "false"},
        }  # fmt: skip

    def _start(self, program: str, own: Sections) -> None:
        (self.directory / "state" / "lock").mkdir(parents=True, exist_ok=True)
        files = []
        for name, sections in ((f"{program}-common.conf", self._common()), (f"{program}.ini", own)):
            write_file(self.directory / name, sections)
            files += ["--config-file", str(self.directory / name)]
        found = f"{self.venv / 'bin'}:{os.environ['PATH']}"
        environment = self.switch.environment | {"PATH": found, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
        with self.log(program).open("ab") as out:
            self.processes[program] = subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.namespace}", str(self.venv / "bin" / program), *files],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True,
            )  # fmt: skip

    def stop_agent(self, program: str) -> None:
        """It is killed: asked to end, an agent takes up to half a minute to do so."""
        process = self.processes.pop(program)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)

    def stop(self) -> None:
        for program in [*self.processes]:
            self.stop_agent(program)
        for name in networks_served():
            for process in _output("ip", "netns", "pids", name).split():
                with contextlib.suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
        self.switch.stop()


def networks_served() -> list[str]:
    """Namespaces of `neutron-dhcp-agent`, one a network."""
    return [each.split()[0] for each in _output("ip", "netns").splitlines() if each.startswith("qdhcp-")]


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
