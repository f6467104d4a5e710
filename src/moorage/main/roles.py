"""The roles of a cloud beyond one process: `moorage api`, `conductor`, `agent` and `embedded`, from one TOML file.

Each is a process of its own; any number of API and conductor processes share one region (RULES §3, §6).  They need a database
and a bus that more than one process can reach: PostgreSQL and NATS.  A process imports its own role and no other.
"""

import argparse
import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec

from moorage.main.config import OPTIONAL_PORTS, Config, checked, read_config
from moorage.main.event_loop import run_loop
from moorage.main.private_data_dir import keep_private
from moorage.main.process import set_up_process, stop_on_signals
from moorage.model.errors import Problem

Role = Callable[[Config, asyncio.Event], Awaitable[None]]

ROLES = {
    "api": ("moorage.main.region_roles", "api"),
    "conductor": ("moorage.main.region_roles", "conductor"),
    "agent": ("moorage.main.agent_role", "agent"),
    "embedded": ("moorage.main.region_roles", "embedded"),
    "metadata": ("moorage.main.metadata", "metadata"),
    "console": ("moorage.main.consoles", "console"),
    "console-web": ("moorage.main.webconsole", "webconsole"),
}
"""Role → its module and its function there."""
OWN_LISTENERS = {"metadata": "metadata", "console": "console", "console-web": "webconsole"}
"""Role → the listener whose port `--port` sets."""


def role_of(name: str) -> Role:
    """Import a role."""
    module, function = ROLES[name]
    return cast("Role", getattr(importlib.import_module(module), function))


async def _run(role: Role, config: Config) -> None:
    await role(config, stop_on_signals(config))


def main(argv: list[str]) -> int:
    """Run a role; `argv[0]` is its name. Returns 2 for an error that the caller can correct."""
    if argv[:2] == ["agent", "clean"]:
        from moorage.main import agent_clean

        return agent_clean.main(argv[2:])
    parser = argparse.ArgumentParser(prog="moorage", description=__doc__)
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--config", type=Path, required=True, help="the TOML file that all processes share")
    parser.add_argument("--host", help="agent: the name of this host")
    parser.add_argument("--cell", help="agent: the cell it belongs to")
    parser.add_argument("--driver", choices=("simulated", "libvirt"), help="agent: what makes its guests")
    parser.add_argument("--physical-networks", help="agent: comma-separated")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), help="agent: its protocol level")
    parser.add_argument(
        "--port",
        type=int,
        help="api, console, console-web, metadata: the port of this one, when several run on one machine",
    )
    parser.add_argument("--placement-port", type=int, help="api: the same for its Placement API")
    parser.add_argument("--metrics-port", type=int, help="the port of /metrics and /healthz of this process")
    arguments = parser.parse_args(argv)
    try:
        config = _with_arguments(read_config(arguments.config), arguments)
        set_up_process(config)
        keep_private(config.data)
        run_loop(_run(role_of(arguments.role), config))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0


def _with_arguments(config: Config, arguments: argparse.Namespace) -> Config:
    replace = msgspec.structs.replace
    if arguments.role == "agent":
        mine = config.agent
        wires = mine.physical_networks
        if arguments.physical_networks:
            wires = tuple(arguments.physical_networks.split(","))
        config = replace(
            config,
            agent=replace(
                mine,
                host=arguments.host or mine.host,
                cell=arguments.cell or mine.cell,
                driver=arguments.driver or mine.driver,
                physical_networks=wires,
                level=arguments.level or mine.level,
            ),
        )
    own = OWN_LISTENERS.get(arguments.role, "compute")
    port_of_own = arguments.port
    if own in OPTIONAL_PORTS and port_of_own is None:
        port_of_own = getattr(config.api, own).port or OPTIONAL_PORTS[own]
    for name, port in ((own, port_of_own), ("placement", arguments.placement_port)):
        if port is not None:
            config = replace(config, api=replace(config.api, **{name: replace(getattr(config.api, name), port=port)}))
    if arguments.metrics_port is not None:
        config = replace(config, metrics=replace(config.metrics, port=arguments.metrics_port))
    return checked(config)
