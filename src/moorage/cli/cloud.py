"""Connects to a running cloud by `OS_CLOUD`, `clouds.yaml` or `OS_*`, like every OpenStack client."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

DEFAULT_CLOUD = "moorage"
LATEST = "2.104"


def options(name: str, description: str) -> argparse.ArgumentParser:
    """Build a parser with the option that every command has."""
    parser = argparse.ArgumentParser(prog=f"moorage {name}", description=description)
    parser.add_argument(
        "--os-cloud",
        default=os.environ.get("OS_CLOUD"),
        help=f"a cloud of clouds.yaml (default: $OS_CLOUD, else {DEFAULT_CLOUD})",
    )
    return parser


def connect(cloud: str | None) -> Any:
    """Open a connection of openstacksdk. If this is not possible, it prints what is missing and raises SystemExit."""
    try:
        import openstack.exceptions
    except ImportError:
        how = "pip install -c constraints.txt -e '.[client]' in the directory of Moorage's repository"
        print(f"moorage: this command needs openstacksdk: {how}", file=sys.stderr)
        raise SystemExit(2) from None
    name = cloud or (None if os.environ.get("OS_AUTH_URL") else DEFAULT_CLOUD)
    try:
        return openstack.connect(cloud=name) if name else openstack.connect()
    except openstack.exceptions.ConfigException as missing:
        print(
            f"moorage: {missing} (start a cloud with `moorage up` in this directory, or set OS_CLOUD)", file=sys.stderr
        )
        raise SystemExit(2) from None


def run(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command. When no cloud answers, one sentence says so, and the result is 2."""
    try:
        from keystoneauth1.exceptions import ConnectionError as NoConnection
        from keystoneauth1.exceptions import DiscoveryFailure
    except ImportError:  # `connect` says so
        return command(words)
    logging.getLogger("keystoneauth").addHandler(
        logging.NullHandler()
    )  # it repeats in its own words what is said below
    try:
        return command(words)
    except (NoConnection, DiscoveryFailure) as failure:
        why = str(failure).partition(": ")[0].rstrip(".")
        print(f"moorage: the cloud does not answer: {why}. Is it running (`moorage up`)?", file=sys.stderr)
        return 2


def refusals() -> Any:
    """Return the exception that openstacksdk raises when a service refuses; its `details` is the sentence."""
    import openstack.exceptions

    return openstack.exceptions.HttpException


def why_not(reply: Any) -> str:
    """Return the sentence of a refusal; if the answer is not ours (a proxy's page), the reason of its status."""
    try:
        return str(next(iter(reply.json().values()))["message"])
    except (ValueError, StopIteration, KeyError, TypeError, AttributeError):
        return str(reply.reason)


def get(connection: Any, path: str, **params: str) -> Any:
    """GET a path below the compute endpoint, at the newest version. A refusal is printed and raises SystemExit."""
    reply = connection.compute.get(path, params=params, microversion=LATEST)
    if reply.status_code >= 400:
        print(f"moorage: {why_not(reply)} ({reply.status_code})", file=sys.stderr)
        raise SystemExit(1)
    return reply.json() if reply.content else {}


def get_or(connection: Any, path: str, otherwise: Any) -> Any:
    """GET as `get` does; return `otherwise` if the API of an earlier release has no such path."""
    reply = connection.compute.get(path, microversion=LATEST)
    return otherwise if reply.status_code == 404 else get(connection, path)


def table(rows: list[list[str]], heads: list[str]) -> str:
    """Format rows as plain columns."""
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [heads, *rows]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
