"""`moorage status --local`: shows the gates without a running API, and whether a conductor would start here (S0.10, N14).

This is the readiness check of an upgrade, on a conductor's machine and with its configuration: it reads hosts' levels from the region's
database, and tries the credentials from this machine.  It writes nothing.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

import msgspec

from moorage.cli.status import FINE, WARNED, lines
from moorage.main.composition import check_credentials
from moorage.main.config import Config, read_config
from moorage.main.service_clients import make_clients
from moorage.model.errors import Invalid, Problem
from moorage.model.ids import CellId
from moorage.operations.gate_watch import try_credentials
from moorage.operations.gates import ConductorCredentials, GateFacts, HostLevel, Report, report
from moorage.operations.limits_elsewhere import limit_warnings
from moorage.operations.unified_limits import UnifiedLimitsCache
from moorage.sql import open_database
from moorage.store.region.placement import provider_statements

REFUSED = 2


async def make_report(config: Config) -> Report:
    """Collect the report. Raises Invalid when a conductor would not start with this configuration."""
    url = config.region_url()
    check_is_there(url)
    clients = make_clients(config)
    database = await open_database(
        url, name="region", durability=config.region.durability, limits=config.database.limits
    )
    try:
        hosts = await database.read(provider_statements.host_levels)
        mine = ConductorCredentials("a conductor here", *await try_credentials(clients.network))
        if config.quota.driver == "local":
            elsewhere = await limit_warnings(clients.identity.limited_resources)
        else:
            elsewhere = await UnifiedLimitsCache(clients.limits, config.quota.missing).warnings()
    finally:
        await database.close()
        await clients.close()
    check_credentials(mine, config)
    pin = config.upgrade_levels.compute
    facts = GateFacts(
        tuple(HostLevel(host, CellId(cell), level) for host, cell, level in hosts),
        (mine,),
        None if pin == "auto" else pin,
    )
    found = report(facts)
    return msgspec.structs.replace(found, warnings=(*found.warnings, *elsewhere))


def check_is_there(url: str) -> None:
    """Check that the region's database exists before it is opened: opening a SQLite file would create it. Raises Invalid."""
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        raise Invalid(f"there is no region yet at {url}")


def main(argv: list[str]) -> int:
    """Run `moorage status --local`. Returns 0: no problem; 1: there is a warning; 2: a conductor would not start."""
    parser = argparse.ArgumentParser(prog="moorage status", description=__doc__)
    parser.add_argument("--local", action="store_true", required=True)
    parser.add_argument("--config", type=Path, help="the TOML file of this machine's conductor")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        status = asyncio.run(make_report(read_config(arguments.config)))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return REFUSED
    report = msgspec.to_builtins(status, str_keys=True)
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(lines(report)))
    return WARNED if status.warnings else FINE
