"""`moorage set`: a trial cloud of separate processes on this machine, in the shape of a real deployment.

It starts PostgreSQL (the wheel's or Debian's) and NATS (the wheel's) in a temporary directory, then the embedded services,
two API processes, two conductors and an agent per host.  Ctrl-C stops everything.

It is secured as a real deployment should be: the bus has TLS and a key for each role and host, and each role has a file with only
what it needs (`files.py`).
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND
from moorage.bus.broker import KeyOfHost
from moorage.main.bus import approve
from moorage.main.config import OPTIONAL_PORTS, Config, read_config
from moorage.main.db import ROLES
from moorage.main.hosts import HostPlan, planned_hosts
from moorage.main.local_cluster.files import (
    CONFIG,
    CONFIG_DRIVES,
    ON_THE_BUS,
    REAL_GUESTS,
    Guarded,
    agents_file,
    console_file,
    tables,
    write,
)
from moorage.main.local_cluster.nats import NatsServer
from moorage.main.local_cluster.ports import free_ports
from moorage.main.local_cluster.postgres import Durability, PostgresServer, start_postgres
from moorage.main.local_cluster.qemu_user import check_way, let_in, qemu_user
from moorage.main.local_cluster.real_hosts import RealHosts
from moorage.main.service_clients import admin_password, demo_password
from moorage.model.private_files import private_directory, private_file

READY_S = 180.0
CONSOLE_WEB, WEBCONSOLE_PORT = "console-web", OPTIONAL_PORTS["webconsole"]
STOP_S = 60.0


class OtherRelease(Protocol):
    """An installed release of Moorage that is not this one."""

    @property
    def python(self) -> Path: ...

    @property
    def environment(self) -> dict[str, str]: ...

    def configuration(self, path: Path) -> Path:
        """Return the settings of a file in the form that this other release reads."""
        ...


@dataclass(frozen=True)
class RealServices:
    """Real services of a trial set, instead of the embedded ones."""

    tables: str
    """The tables of the TOML file that name the services."""
    service_user: str
    """The lines of the table `[service_user]`."""
    ports: Mapping[str, int]
    """The ports of our services, as the catalog names them."""
    token: Callable[[], str]
    """A new one, of an administrator."""
    reached: tuple[int, ...] = ()
    """Ports of theirs on this machine's loopback that real hosts reach at their own."""


@dataclass
class TrialSet:
    """The processes of one trial set, by name; each can be killed and started again."""

    directory: Path
    hosts: int = 4
    apis: int = 2
    conductors: int = 2
    cells: int = 2
    wires: tuple[str, ...] = ()
    """The physical networks of every host; empty: the usual sets, which alternate from host to host."""
    port_shift: int = 0
    level: int | None = None
    """The protocol level of every agent; None: as configured."""
    settings: str = ""
    """Further tables for the TOML file, which it does not have yet."""
    real_guests: bool = False
    """Whether hosts are namespaces of this machine, each with a libvirt daemon; this needs root."""
    beside: RealServices | None = None
    """Real services; None: the embedded ones. Beside real ones the bus is open."""
    guests_ask: bool = False
    """With a metadata service, a console proxy and a web console."""
    durability: Durability = "power"
    releases: dict[str, OtherRelease] = field(default_factory=dict)
    """Processes, by name, that run another release. If there are any at the start, the bus is open, because release 0.1.0 has no keys."""
    guarded: Guarded | None = None
    """The keys of a secured bus; None: the bus is open to everybody who reaches it."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    postgres: PostgresServer | None = None
    nats: NatsServer | None = None
    real: RealHosts | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def config_path(self) -> Path:
        return self.directory / "moorage.toml"

    @property
    def cell_names(self) -> list[str]:
        return [f"cell{number + 1}" for number in range(self.cells)]

    @property
    def databases(self) -> list[str]:
        return ["region", *self.cell_names]

    def path_of(self, name: str) -> Path:
        """The file of one process."""
        own = name == CONSOLE_WEB or (self.real is not None and name.startswith("agent-"))
        if self.guarded is None:
            return self.directory / f"{name}.toml" if own else self.config_path
        whose = name if name.startswith(("agent-", CONSOLE_WEB)) else name.partition("-")[0]
        return self.config_path if whose == "embedded" else self.directory / f"{whose}.toml"

    def rewrite(self, old: str, becomes: str) -> None:
        """Replace a text in every configuration file that contains it."""
        for path in self.directory.glob("*.toml"):
            path.write_text(path.read_text().replace(old, becomes))

    def start(self) -> None:
        """Start everything; returns when servers can be booted. Raises RuntimeError when a process does not become ready, and Invalid
        when real guests can have no user of their own."""
        private_directory(self.directory)
        user = qemu_user() if self.real_guests else None
        if user is not None:
            check_way(user, self.directory)
            let_in(user, [self.directory])
        shutil.rmtree(self.directory / "data", ignore_errors=True)  # of an earlier set, whose databases are gone
        self.postgres = start_postgres(durability=self.durability, passwords=True)
        self._stack.callback(self.postgres.stop)
        postgres = self.postgres
        urls = {name: postgres.create_database(name) for name in self.databases}
        names = ("identity", "image", "network", "volume", "compute", "placement", "metadata", "console")
        usual = [base + self.port_shift for base in (5000, 9292, 9696, 8776, 8774, 8778, 8775, 6080)]
        ports: dict[str, int] = dict(zip(names, usual if self.port_shift else free_ports(len(names)), strict=True))
        if self.beside is not None:
            ports.update(self.beside.ports)
        if self.real_guests:
            hosts = [f"host{number + 1}" for number in range(self.hosts)]
            self.real = RealHosts(self.directory / "machines", hosts, user)
            self._stack.callback(self.real.stop)
            self.real.start()
        self.api_ports = [ports["compute"], *free_ports(self.apis - 1)]
        self.placement_ports = [ports["placement"], *free_ports(self.apis - 1)]
        self.console_port = WEBCONSOLE_PORT + self.port_shift if self.port_shift else free_ports(1)[0]
        self._write_files(postgres, urls, ports)
        self.run(
            "embedded", "embedded"
        )  # it makes the tables and the service's user; the others may start at the same time
        self._let_in(postgres)
        if self.real is not None and self.nats is not None:
            reached = [
                self.nats.port,
                *(ports[name] for name in ("identity", "image", "network", "volume", "metadata")),
            ]
            self.real.reach(reached if self.beside is None else [*reached, *self.beside.reached])
        begun = [self.launch(f"conductor-{number + 1}", "conductor") for number in range(self.conductors)]
        begun += [self.launch(f"agent-{plan.host}", *self.agent_arguments(plan)) for plan in planned_hosts(self.config)]
        begun += [self.launch(f"api-{number + 1}", *self.api_arguments(number)) for number in range(self.apis)]
        begun += [self.launch(name, name) for name in self._guest_roles()]
        for each in begun:
            self.wait_ready(*each)
        self._wait_for_hosts()

    def _guest_roles(self) -> tuple[str, ...]:
        """Roles that run because guests, and who looks at them, ask them."""
        if self.guests_ask:
            return "metadata", "console", CONSOLE_WEB
        return ("metadata",) if self.real_guests else ()

    def _write_files(self, postgres: PostgresServer, urls: Mapping[str, str], ports: Mapping[str, int]) -> None:
        """Write one file for all processes, or, if the bus is secured, one for each role and agent, and start the bus."""
        user, neighbours = f'password = "set-{os.urandom(16).hex()}"', ""
        if self.beside is not None:
            user, neighbours = self.beside.service_user, self.beside.tables
        settings = {
            "data": self.directory / "data", "hosts": self.hosts, "service_user": user, "images": "",
            "wires": f"physical_networks = {json.dumps([self.wires])}\n" if self.wires else "", **ports,
        }  # fmt: skip
        is_open = bool(self.releases) or self.beside is not None
        if not is_open:  # release 0.1.0 knows no tickets
            settings["images"] = "\n" + tables({"image": {"ticket_secret": "set-" + os.urandom(16).hex()}})

        def file(bus: Mapping[str, Any], role: str = "") -> str:
            own = {name: postgres.url_as(f"moorage_{role}", name) for name in urls} if role else urls
            cells = "".join(f'[[cells]]\nname = "{name}"\ndatabase = "{own[name]}"\n\n' for name in self.cell_names)
            values = {**settings, "region": own["region"], "cells": cells, "bus": tables({"bus": bus}) if bus else ""}
            guests = REAL_GUESTS if self.real_guests else ""
            guests += CONFIG_DRIVES if self.real_guests and self.beside is not None else ""
            return CONFIG.format(**values) + neighbours + self.settings + guests

        write(self.config_path, file({}))
        write(self.path_of(CONSOLE_WEB), console_file(self.config, self.console_port))
        self.guarded = None if is_open else Guarded(self.directory, planned_hosts(self.config))
        self.nats = self._stack.enter_context(NatsServer(conf="" if self.guarded is None else self.guarded.conf))
        if self.guarded is None:
            write(self.config_path, file({"url": self.nats.url}))
            for plan in planned_hosts(self.config) if self.real is not None else ():
                self._write_agents_file(plan, {"url": self.nats.url})
        else:
            for role in (*ON_THE_BUS, "metadata"):
                bus = self.guarded.bus(role, self.nats.url) if role in ON_THE_BUS else {}
                write(self.path_of(role), file(bus, role))
            for plan in planned_hosts(self.config):
                self._write_agents_file(plan, self.guarded.bus(f"agent-{plan.host}", self.nats.url))

    def _write_agents_file(self, plan: HostPlan, bus: Mapping[str, Any]) -> None:
        lowest = min(self.level or PORTS_ARRIVE_BOUND, self.config.agent.level)
        own = None if self.real is None else self.real.settings(plan.host, self.config.api.metadata.port)
        write(self.path_of(f"agent-{plan.host}"), agents_file(self.config, plan, bus, lowest, own))

    def _let_in(self, postgres: PostgresServer) -> None:
        """Grant each process its rights in the databases, and approve the hosts."""
        if self.guarded is not None:
            for name in self.databases:
                postgres.run_script(name, ROLES)
            postgres.let_in([f"moorage_{role}" for role in (*ON_THE_BUS, "metadata")])
            asyncio.run(approve(self.config, self.guarded.hosts, "moorage set"))
        elif self.beside is not None:
            plans = planned_hosts(self.config)
            asyncio.run(approve(self.config, [KeyOfHost(plan.host, plan.cell, "") for plan in plans], "moorage set"))

    def api_arguments(self, number: int) -> tuple[str, ...]:
        """Return the arguments that start the API process with this number (from 0)."""
        return "api", "--port", str(self.api_ports[number]), "--placement-port", str(self.placement_ports[number])

    def agent_arguments(self, plan: HostPlan) -> tuple[str, ...]:
        """Return the arguments that start the agent of this host."""
        wires = ",".join(plan.physical_networks)
        place = ("--host", plan.host, "--cell", plan.cell)
        level = () if self.level is None else ("--level", str(self.level))
        return "agent", *place, "--physical-networks", wires, *level

    def arguments_of(self, name: str) -> tuple[str, ...]:
        """Return the arguments that start the process with this name again."""
        role, _, which = name.partition("-")
        match role:
            case "api":
                return self.api_arguments(int(which) - 1)
            case "agent":
                return self.agent_arguments(next(plan for plan in planned_hosts(self.config) if plan.host == which))
            case _:
                return (name,) if name == CONSOLE_WEB else (role,)

    @property
    def config(self) -> Config:
        return read_config(self.config_path)

    def run(self, name: str, *words: str) -> None:
        """Start one process and wait until it is ready. Raises RuntimeError when it does not become ready."""
        self.wait_ready(*self.launch(name, *words))

    def launch(self, name: str, *words: str) -> tuple[str, int]:
        """Start one process. Returns its name, and the position in its log file at which its log begins."""
        log = self.directory / f"{name}.log"
        other = self.releases.get(name)
        python, environment = (sys.executable, None) if other is None else (str(other.python), other.environment)
        path = self.path_of(name) if other is None else other.configuration(self.config_path)
        prefix = self.real.inside(name.partition("-")[2]) if self.real is not None and words[0] == "agent" else []
        command = [*prefix, python, "-m", "moorage", words[0], "--config", str(path), *words[1:]]
        with private_file(log).open("ab") as out:
            at = out.tell()
            self.processes[name] = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment
            )
        return name, at

    def wait_ready(self, name: str, at: int) -> None:
        """Wait until the process logs that it is ready, after position `at` of its log file. Raises RuntimeError when it does not."""
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + READY_S
        while b": ready" not in log.read_bytes()[at:]:
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not become ready:\n{log.read_text()[-3000:]}")
            time.sleep(0.02)

    def _wait_for_hosts(self) -> None:
        """Wait until the hosts' providers are in Placement. Agents are ready earlier, before their cells have their reports."""
        deadline = time.monotonic() + READY_S
        hosts = self.config.hosts
        guarantees = self.beside is None and not self.real_guests and (hosts.bandwidth_kbps or hosts.packet_rate_kpps)
        of_host = {"": True, ":Open vSwitch agent": guarantees}
        wanted = {plan.host + kind for plan in planned_hosts(self.config) for kind, has in of_host.items() if has}
        headers = {"X-Auth-Token": self.token()}
        with httpx.Client(headers=headers, timeout=READY_S) as client:
            while True:
                reply = client.get(f"{self.placement_urls()[0]}/resource_providers")
                reply.raise_for_status()
                missing = wanted - {each["name"] for each in reply.json()["resource_providers"]}
                if not missing:
                    return
                if time.monotonic() > deadline:
                    raise RuntimeError(f"these did not report: {', '.join(sorted(missing))}")
                time.sleep(0.05)

    def kill(self, name: str) -> None:
        """`kill -9`."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_S)

    def pause(self, name: str) -> None:
        """Freeze a process, as if its machine stopped for a while: nothing of it runs, and its connections stay open."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGCONT)

    def log_of(self, name: str) -> str:
        """The log of one process."""
        return (self.directory / f"{name}.log").read_text()

    def stop(self) -> None:
        """Stop everything: with SIGTERM first, then with SIGKILL."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + STOP_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
        self.processes.clear()
        self._stack.close()

    def api_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/v2.1" for port in self.api_ports]

    @property
    def console_url(self) -> str:
        """The web console's, where `guests_ask`."""
        return f"http://127.0.0.1:{self.console_port}"

    def placement_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/placement" for port in self.placement_ports]

    def token(self, user: str = "admin", project: str = "admin") -> str:
        """Return a token of the embedded identity service, or of the real service's administrator."""
        if self.beside is not None:
            return self.beside.token()
        password = admin_password(self.config) if user == "admin" else demo_password(self.config)
        domain = {"id": "default"}
        identity = {"name": user, "domain": domain, "password": password}
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": identity}},
                "scope": {"project": {"name": project, "domain": domain}},
            }
        }
        reply = httpx.post(f"{self.config.api.identity.url}/v3/auth/tokens", json=body, timeout=30.0)
        reply.raise_for_status()
        return str(reply.headers["X-Subject-Token"])
