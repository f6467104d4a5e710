"""`moorage bus`: makes keys for processes and hosts, prints what each role may publish and subscribe to, and writes the broker's configuration."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moorage.bus.broker import KeyOfHost, Keys, configuration, read_keys
from moorage.bus.permissions import ROLES, of_agent, of_process
from moorage.bus.security import new_seed, public_key
from moorage.main.config import Config, read_config
from moorage.model.errors import Invalid, Problem
from moorage.model.ids import CellId
from moorage.sql import Tx, open_database
from moorage.store.region import host_approvals

SEED_BYTES = 32


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="moorage bus", description=__doc__)
    verbs = made.add_subparsers(dest="verb", required=True)
    key = verbs.add_parser("key", help="make a key, unless it is there, and print its public half")
    key.add_argument("file", type=Path, help="the seed: it stays where the process runs, readable by it alone")
    allowed = verbs.add_parser(
        "permissions", help="what a role may publish and subscribe to, as JSON: for credentials that others make"
    )
    allowed.add_argument("role", choices=ROLES)
    allowed.add_argument(
        "--cell", action="append", default=[], help="again for more than one; none: all, but for an agent"
    )
    allowed.add_argument("--host", default="", help="of an agent")
    config = verbs.add_parser("config", help="print the configuration of a NATS server that lets in who is listed")
    config.add_argument(
        "--config", type=Path, help="and the hosts that were approved with a key, from the region of this file"
    )
    config.add_argument(
        "--keys", type=Path, required=True, help="a TOML file: the server's address, certificate, and keys"
    )
    return made


def main(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    try:
        match arguments.verb:
            case "key":
                print(make_key(arguments.file))
            case "permissions":
                print(_permissions(arguments.role, arguments.cell, arguments.host))
            case _:
                keys = read_keys(arguments.keys)
                if arguments.config is not None:
                    keys = asyncio.run(with_approved(keys, read_config(arguments.config)))
                sys.stdout.write(configuration(keys))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0


async def with_approved(keys: Keys, config: Config) -> Keys:
    """Add the hosts that were approved with a key. Raises Unavailable when the region cannot be reached."""
    database = await open_database(config.region_url(), name="region", limits=config.database.limits)
    try:
        rows = await database.read(host_approvals.keys)
    finally:
        await database.close()
    approved = tuple(KeyOfHost(row.host, row.cell, row.key) for row in rows if row.key is not None)
    return msgspec.structs.replace(keys, hosts=(*keys.hosts, *approved))


async def approve(config: Config, hosts: Iterable[KeyOfHost], by: str) -> None:
    """Approve hosts before an API runs, as `moorage host approve` does later.

    A host without a key is one that the broker identifies in another way.
    Raises Invalid when the key belongs to another host, or when there are too many hosts.
    """
    database = await open_database(config.region_url(), name="region", limits=config.database.limits)
    now = int(time.time() * 1_000_000)
    try:
        for each in hosts:

            def work(tx: Tx, each: KeyOfHost = each) -> str | None:
                return host_approvals.approve(tx, each.host, CellId(each.cell), each.key or None, now, by)

            if (other := await database.write(work)) is not None:
                raise Invalid(f"{each.host} is not approved: its key is host {other}'s, or there are too many hosts")
    finally:
        await database.close()


def make_key(file: Path) -> str:
    """Return the public half of the key in this file; make the key if the file is not there.

    Raises Invalid when the file cannot be read or written, or holds no key.
    """
    if not file.exists():
        write_secret(file, new_seed(os.urandom(SEED_BYTES)) + "\n")
    return public_key(file)


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner can read, from the first moment. Raises Invalid when it cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
    except OSError as failure:
        raise Invalid(f"{file} cannot be written: {failure.strerror}") from failure


def _permissions(role: str, cells: list[str], host: str) -> str:
    if role == "agent":
        if len(cells) != 1 or not host:
            raise Invalid("an agent is one host in one cell: say --cell and --host")
        allowed = of_agent(cells[0], host)
    else:
        allowed = of_process(role, cells)
    return json.dumps({"publish": list(allowed.publish), "subscribe": list(allowed.subscribe)}, indent=2)
