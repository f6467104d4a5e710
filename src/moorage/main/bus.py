"""`moorage bus`: keys for processes and hosts, what each role may say and hear, and the broker's configuration made of that."""

import argparse
import json
import os
import sys
from pathlib import Path

from moorage.bus.broker import configuration, read_keys
from moorage.bus.permissions import ROLES, of_agent, of_process
from moorage.bus.security import new_seed, public_key
from moorage.model.errors import Invalid, Problem

SEED_BYTES = 32


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="moorage bus", description=__doc__)
    verbs = made.add_subparsers(dest="verb", required=True)
    key = verbs.add_parser("key", help="make a key, unless it is there, and print its public half")
    key.add_argument("file", type=Path, help="the seed: it stays where the process runs, readable by it alone")
    allowed = verbs.add_parser(
        "permissions", help="what a role may say and hear, as JSON: for credentials that others make"
    )
    allowed.add_argument("role", choices=ROLES)
    allowed.add_argument(
        "--cell", action="append", default=[], help="again for more than one; none: all, but for an agent"
    )
    allowed.add_argument("--host", default="", help="of an agent")
    config = verbs.add_parser("config", help="print the configuration of a NATS server that lets in who is listed")
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
                sys.stdout.write(configuration(read_keys(arguments.keys)))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0


def make_key(file: Path) -> str:
    """The public half of the key in this file, which is made if it is not there. Raises Invalid."""
    if not file.exists():
        write_secret(file, new_seed(os.urandom(SEED_BYTES)) + "\n")
    return public_key(file)


def write_secret(file: Path, text: str) -> None:
    """Readable by its owner only, from the first moment. Raises Invalid where it cannot be written."""
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
