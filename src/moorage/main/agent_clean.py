"""`moorage agent clean`: removes the guests of this machine's host, their disks, and everything that was made for them."""

import argparse
import asyncio
import logging
import shutil
import socket
import sys
from pathlib import Path

import msgspec

from moorage.main.config import Config, checked, read_config
from moorage.main.event_loop import run_loop
from moorage.main.hosts import HostPlan, make_driver
from moorage.model.clock import SystemClock
from moorage.model.errors import Invalid, Problem
from moorage.model.ids import CellId


def main(argv: list[str]) -> int:
    """Run `moorage agent clean`. Returns 1 if it only listed what would be removed, 2 for an error that the caller can correct."""
    parser = argparse.ArgumentParser(prog="moorage agent clean", description=__doc__)
    parser.add_argument("--config", type=Path, help="the agent's, or that of `moorage up`")
    parser.add_argument("--data-dir", help="of `moorage up` without a file")
    parser.add_argument("--host", help="the host's name (default: [agent] host, or the machine's)")
    parser.add_argument("--yes", action="store_true", help="do it; without this it is only said what would go")
    arguments = parser.parse_args(argv)
    try:
        logging.basicConfig(level=logging.WARNING)
        config = read_config(arguments.config)
        config = msgspec.structs.replace(config, data_dir=arguments.data_dir or config.data_dir)
        host = arguments.host or config.agent.host or socket.gethostname()
        counts: list[int] = []
        run_loop(_clean(checked(config), host, counts, yes=arguments.yes))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0 if arguments.yes or not counts else 1


async def _clean(config: Config, host: str, counts: list[int], *, yes: bool) -> None:
    plan = HostPlan(host, CellId(config.agent.cell), config.agent.physical_networks, real=True)
    driver = make_driver(config, plan, SystemClock(), None)
    if not driver.room.is_dir():
        raise Invalid(f"there is no host {host} here: {driver.room} does not exist")
    await driver.start(serving=yes)
    try:
        guests = sorted({*await driver.guests(), *await driver.arrivals()})
        if not yes:
            counts.append(len(guests))
            print(f"{len(guests)} guests of {host}, with their disks, would go (say --yes): {', '.join(guests)}")
            return
        for server in guests:
            await driver.destroy_guest(server)
        await driver.clean()
    finally:
        await driver.close()
    await asyncio.to_thread(shutil.rmtree, driver.room)
    print(f"{len(guests)} guests of {host} are gone, and {driver.room}")
