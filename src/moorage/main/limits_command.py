"""`moorage limits migrate`: copies quotas to the identity service as unified limits; reads this machine's configuration and databases.

It does what `nova-manage limits migrate_to_unified_limits` does, has its options and its codes of return, and may be called by that
name. Limits that exist are never changed. Without --region-id the limits are those of the region from which they are read later.

0: all classes of resources that flavors and servers ask for have a registered limit; 1: something failed; 2: a database does not answer;
3: a registered limit is missing, which the output names.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from moorage.clients.compute_limits import ComputeLimitsClient, LimitsPlace
from moorage.main.config import Config, read_config
from moorage.main.databases import Databases, connect_databases
from moorage.main.service_clients import make_clients
from moorage.main.status import check_is_there
from moorage.model.errors import Invalid, Problem, Unavailable
from moorage.operations.limits_migration import migrate, wanted_classes

DONE, FAILED, NO_DATABASE, MISSING = range(4)
NAMES = ("migrate", "migrate_to_unified_limits")

ReportLine = Callable[[str], None]


class _Placed:
    """The identity service's limits of one service and region."""

    def __init__(self, client: ComputeLimitsClient, place: LimitsPlace) -> None:
        self._client, self._place = client, place

    async def registered(self) -> dict[str, int]:
        return await self._client.registered(self._place)

    async def of_project(self, project: str) -> dict[str, int]:
        return await self._client.of_project(project, self._place)

    async def register(self, name: str, limit: int) -> None:
        await self._client.register(self._place, name, limit)

    async def limit_project(self, project: str, name: str, limit: int) -> None:
        await self._client.limit_project(self._place, project, name, limit)


async def run(config: Config, arguments: argparse.Namespace) -> int:
    """Migrate, and look for what has no registered limit. Returns the code of return."""
    report_line: ReportLine = print if arguments.verbose else lambda _: None
    warn_line: ReportLine = (lambda _: None) if arguments.quiet else print
    try:
        check_is_there(config.region_url())
        if arguments.no_embedded_flavor_scan:
            config = msgspec.structs.replace(config, cells=())
        databases = await connect_databases(config)
    except Unavailable as out:
        print(f"moorage: {out.public}", file=sys.stderr)
        return NO_DATABASE
    clients = make_clients(config)
    try:
        place = await clients.limits.place()
        if arguments.region_id:
            place = msgspec.structs.replace(place, region=arguments.region_id)
        placed = _Placed(clients.limits, place)
        project, dry_run = arguments.project_id, arguments.dry_run
        done = await migrate(
            databases.region, placed, config.quota.defaults, project, dry_run=dry_run, report_line=report_line
        )
        for each in done.failed:
            print(f"moorage: {each}", file=sys.stderr)
        if done.failed:
            return FAILED
        return await _scan(databases, done.existing, arguments, report_line, warn_line)
    finally:
        await clients.close()
        await databases.close()


async def _scan(
    databases: Databases,
    existing: dict[str, int],
    arguments: argparse.Namespace,
    report_line: ReportLine,
    warn_line: ReportLine,
) -> int:
    cells = {str(cell): database for cell, database in databases.cells.items()}
    servers = not arguments.no_embedded_flavor_scan
    wanted, silent = await wanted_classes(databases.region, cells, arguments.project_id, servers=servers)
    missing = sorted(wanted - existing.keys())
    for name in sorted(wanted & existing.keys()):
        report_line(f"{name}: {existing[name]}")
    for name in missing:
        warn_line(f"{name}: no registered limit")
    if silent:
        print(
            f"moorage: cells {', '.join(silent)} did not answer: what their servers ask for is not known",
            file=sys.stderr,
        )
    if missing:
        warn_line('create registered limits for them before [quota] driver = "unified_limits" is set')
        return MISSING
    if silent:
        return NO_DATABASE
    warn_line("all classes of resources have registered limits")
    return DONE


def main(argv: list[str]) -> int:
    """Run `moorage limits migrate`. Returns the code of return that the module names; what raises Invalid is FAILED."""
    parser = argparse.ArgumentParser(prog="moorage limits", description=__doc__)
    parser.add_argument("verb", choices=NAMES)
    parser.add_argument("--config", type=Path, help="the TOML file of this region's processes")
    parser.add_argument("--project-id", help="copy this project's own quotas, too")
    parser.add_argument("--region-id", help="the region of the limits")
    parser.add_argument("--verbose", action="store_true", help="name each limit")
    parser.add_argument(
        "--dry-run", action="store_true", help="create nothing; flavors are looked through nevertheless"
    )
    parser.add_argument("--quiet", action="store_true", help="print failures only")
    parser.add_argument(
        "--no-embedded-flavor-scan", action="store_true", help="do not look through the flavors of existing servers"
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.verbose and arguments.quiet:
            raise Invalid("--verbose and --quiet exclude one another")
        return asyncio.run(run(read_config(arguments.config), arguments))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return FAILED
