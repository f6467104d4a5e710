"""Two hosts with real guests and a real Neutron whose own agents wire them.

RabbitMQ, Open vSwitch in userspace, `neutron-openvswitch-agent` on each host and `neutron-dhcp-agent` on one, all in namespaces of this machine.
"""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.main.local_cluster.cluster import RealServices, TrialSet
from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.rabbit import Rabbit, rabbit_program
from moorage_testing.real_services.neutron_agents import NeutronHost
from moorage_testing.real_services.open_vswitch import lacks_open_vswitch
from moorage_testing.real_services.stack import Stack, start_stack
from moorage_testing.waiting import PATIENCE_S
from tests.helpers.libvirt_host import DISK, guest_files
from tests.helpers.real_services_cloud import ServicesClient

AGENTS = {"Open vSwitch agent", "DHCP agent"}
TUNNELS = "10.250.78"
DEVICE, WIRE_MTU = "tunnel", 1_600
SETTINGS = "\n[compute]\n"
"""How long the network's word is waited for is as it comes: `vif_plugging_timeout`, five minutes; `with_compute` adds lines here."""


def lacks() -> str:
    """What this machine lacks for it, in a sentence; empty: nothing."""
    if rabbit_program() is None:
        return "no RabbitMQ here: apt-get install rabbitmq-server"
    if find_binaries() is None or nats_server_program() is None:
        return "needs PostgreSQL and NATS"
    return lacks_open_vswitch()


@dataclass
class NeutronSite:
    """All of it; `start` and `stop`."""

    directory: Path
    firewalls: Sequence[str] = ("openvswitch", "openvswitch")
    """Of the agents, one a host."""
    settings: str = SETTINGS
    hosts: dict[str, NeutronHost] = field(default_factory=dict[str, NeutronHost])
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o711)  # QEMU's user reaches guests' files below it
        program = rabbit_program()
        assert program is not None
        (self.directory / "rabbit").mkdir()
        self.broker = Rabbit(program, self.directory / "rabbit")
        self.broker.start()
        self._stack.callback(self.broker.stop)
        self.neighbours: Stack = start_stack(self.directory / "neighbours", self.broker.url)
        self._stack.callback(self.neighbours.stop)
        beside = neighbours(self.neighbours, self.broker.port)
        self.trial = TrialSet(
            self.directory / "set", hosts=len(self.firewalls), apis=1, conductors=1, cells=1, wires=("physnet1",), durability="none",
            beside=beside, real_guests=True, settings=self.settings,
        )  # fmt: skip
        self._stack.callback(self.trial.stop)
        self.trial.start()
        self._wire()

    def _wire(self) -> None:
        """Beside the wire of the set one for tunnels, which the switches have for themselves."""
        real = self.trial.real
        assert real is not None
        inside = ("ip", "-n", real.prefix, "link")
        call(*inside, "add", DEVICE, "mtu", str(WIRE_MTU), "type", "bridge", "mcast_snooping", "0")
        call(*inside, "set", DEVICE, "up")
        for number, (name, firewall) in enumerate(zip(real.names, self.firewalls, strict=True)):
            there = real.namespace(name)
            call(
                *inside,
                "add",
                f"t{number}",
                "mtu",
                str(WIRE_MTU),
                "type",
                "veth",
                "peer",
                "name",
                DEVICE,
                "netns",
                there,
            )
            call(*inside, "set", f"t{number}", "mtu", str(WIRE_MTU), "master", DEVICE, "up")
            call("ip", "-n", there, "link", "set", DEVICE, "mtu", str(WIRE_MTU), "up")
            address = f"{TUNNELS}.{number + 1}"
            host = NeutronHost(
                name, there, real.directory / name, self.neighbours.site.venv, self.broker.url, address, firewall
            )
            self.hosts[name] = host
            self._stack.callback(host.stop)
            host.switch.start()
            host.switch.join(DEVICE, f"{address}/24")
            host.start_agent()
        next(iter(self.hosts.values())).start_dhcp()

    def stop(self) -> None:
        self._stack.close()

    def desk(self, who: str) -> ServicesClient:
        return ServicesClient(self.neighbours, self.trial.config, who)

    async def agents_alive(self, admin: ServicesClient) -> None:
        """Neutron has heard all of them, and those that wire ports are ready for guests."""

        async def look() -> set[tuple[str, str]]:
            told = (await admin("network", "GET", "/agents"))["agents"]
            return {(each["agent_type"], each["host"]) for each in told if each["alive"]}

        wanted = {("Open vSwitch agent", name) for name in self.hosts} | {("DHCP agent", next(iter(self.hosts)))}
        await until(look, lambda seen: wanted <= seen)
        for host in self.hosts.values():
            await asyncio.to_thread(host.settle_agent)

    def events_taken(self) -> int:
        """How often Neutron told of its ports, and was heard."""
        return self.trial.log_of("api-1").count("POST /v2.1/os-server-external-events 200")

    def with_compute(self, line: str) -> None:
        """The conductor begins anew with this line in its table `[compute]`."""
        assert "\n[compute]\n" in self.trial.config_path.read_text()
        self.trial.rewrite("[compute]\n", f"[compute]\n{line}\n")
        self._conductor_anew()

    def without_compute(self, line: str) -> None:
        self.trial.rewrite(f"[compute]\n{line}\n", "[compute]\n")
        self._conductor_anew()

    def _conductor_anew(self) -> None:
        self.trial.kill("conductor-1")
        self.trial.run("conductor-1", *self.trial.arguments_of("conductor-1"))

    async def filters_with(self, admin: ServicesClient, host: str, firewall: str) -> None:
        """Neutron's agent there begins anew with this `firewall_driver`, and Neutron has heard that."""
        its = self.hosts[host]
        await asyncio.to_thread(its.stop_agent, "neutron-openvswitch-agent")
        its.firewall = firewall
        await asyncio.to_thread(its.start_agent)

        async def look() -> list[bool]:
            told = (await admin("network", "GET", f"/agents?host={host}&agent_type=Open vSwitch agent"))["agents"]
            return [each["configurations"].get("ovs_hybrid_plug") for each in told]

        await until(look, lambda seen: seen == [firewall == "iptables_hybrid"])
        await asyncio.to_thread(its.settle_agent)

    def left(self, host: str) -> list[str]:
        """What is still there of guests of this host, in its switch too."""
        real = self.trial.real
        assert real is not None
        room, daemon = self.trial.directory / "data" / "hosts" / host, real.daemons[host]
        ports = self.hosts[host].switch.vsctl(
            "--bare", "--columns=name", "find", "Interface", 'external_ids:moorage-owner!=""'
        )
        found = leftovers(room, uri=daemon.uri, inside=real.inside(host), groups=daemon.groups_of_guests)
        return found + [f"port {each}" for each in ports.split()]

    def inside(self, host: str, *words: str) -> subprocess.CompletedProcess[str]:
        assert self.trial.real is not None
        return subprocess.run([*self.trial.real.inside(host), *words], capture_output=True, text=True, check=False)


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def neighbours(stack: Stack, broker_port: int) -> RealServices:
    """What the set is told of the real ones."""
    login, site = stack.logins["moorage"], stack.site
    user = f'user = "{login.user}"\npassword = "{login.password}"\nproject = "{login.project}"'
    return RealServices(
        tables=f'[identity]\nurl = "{stack.identity_url}"\n\n[image]\nurl = "{stack.image_url}"\n\n'
        f'[network]\nurl = "{stack.network_url}"\n\n[image_user]\n{user}\n\n',
        service_user=user,
        ports={"compute": site.our_compute_port, "placement": site.our_placement_port},
        token=lambda: stack.token("admin"),
        reached=(site.identity_port, site.image_port, broker_port),
    )


async def upload(admin: ServicesClient, stack: Stack) -> str:
    """The guest of the tests, as an image that everybody may use."""
    asked = {"name": "guest", "disk_format": "qcow2", "container_format": "bare", "visibility": "public"}
    made = await admin("image", "POST", "/images", asked)
    data = await asyncio.to_thread(guest_files()[DISK].path.read_bytes)
    await admin.put_data(str(made["id"]), data)
    return str(made["id"])


async def until(look: Callable[[], Any], wanted: Callable[[Any], bool], pause_s: float = 0.3) -> Any:
    """What is seen as soon as it is as wanted. Raises AssertionError with what is seen at the deadline."""
    ends = time.monotonic() + PATIENCE_S
    while not wanted(seen := await look()):
        assert time.monotonic() < ends, f"still: {seen}"
        await asyncio.sleep(pause_s)
    return seen


@contextlib.contextmanager
def a_site(directory: Path, **more: Any) -> Iterator[NeutronSite]:
    made = NeutronSite(directory, **more)
    try:
        made.start()
        yield made
    finally:
        made.stop()
