"""`moorage schedule`: replay decisions that were recorded, or one from two files, or write those from a region's database.

Nothing is changed: the database is read in one snapshot, and the decision is the pure function that conductors use.  The database does
not record what each process only knows in memory: in an exported world every host is alive, and none has failed lately.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from moorage.main.config import Config, read_config
from moorage.main.schedule_recorded import add_options, describe, replay_recorded, written_pretty
from moorage.model.errors import Invalid, NotFound, Problem
from moorage.model.ids import ServerId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask
from moorage.model.world_snapshot import FORMAT, WorldSnapshot, photo_of, world_of
from moorage.operations.boot.boot import Boot, Made, ask_of
from moorage.placement.cache.cache import ProviderCache
from moorage.saga import decode_lines
from moorage.saga.journal import StepResult
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx, open_database
from moorage.store.region import aggregates, operations
from moorage.store.region.placement.change_feed import since

PORTS_STEP = "make_ports"
StructT = TypeVar("StructT", bound=msgspec.Struct)


def take_photo(tx: Tx) -> WorldSnapshot:
    """Read every host from the region's database."""
    picture = ProviderCache()
    picture.apply(since(tx))
    picture.set_host_aggregates(aggregates.for_placement(tx))
    return photo_of(picture.world())


def ask_of_server(tx: Tx, server: ServerId) -> Ask:
    """What the scheduler was asked when the server was booted. Raises NotFound when no boot of it is remembered."""
    boots = [each for each in operations.of_server(tx, server) if each.name == "boot"]
    if not boots:
        raise NotFound(f"no boot of server {server} is remembered")
    boot = msgspec.json.decode(boots[-1].asked, type=Boot)
    made = Made()
    for line in decode_lines(boots[-1].journal):
        if isinstance(line, StepResult) and line.step == PORTS_STEP:
            made = msgspec.json.decode(line.value, type=Made)
    return ask_of(boot, {**boot.networks, **made.networks}, made.ports, not_on=())


async def read_region(config: Config, server: str | None) -> tuple[WorldSnapshot, Ask | None]:
    """Read the region's hosts, and the ask of a server's boot."""
    region: Database = await open_database(config.region_url(), name="region", limits=config.database.limits)
    try:
        photo = await region.read(take_photo)
        ask = None if server is None else await region.read(lambda tx: ask_of_server(tx, ServerId(server)))
    finally:
        await region.close()
    return photo, ask


def export(config: Config, world: Path, server: str | None, ask_path: Path) -> list[str]:
    """Write the files. Returns a line for each of them. Raises Invalid when there is no region's database."""
    if not config.region.database and not (config.data / "region.db").exists():
        raise Invalid(f"there is no region in {config.data}: say where with --data-dir or --config")
    photo, request = asyncio.run(read_region(config, server))
    world.write_bytes(written_pretty(photo))
    lines = [f"{world}: {len(photo.hosts)} hosts, {len(photo.segments)} segments"]
    if request is not None:
        ask_path.write_bytes(written_pretty(request))
        lines.append(f"{ask_path}: what was asked for {server}")
    return lines


def replay(photo: WorldSnapshot, ask: Ask, config: Config | None = None) -> Verdict:
    """Make the decision again; with a configuration, with its multipliers of weights."""
    multipliers = {} if config is None else config.scheduler.multipliers
    return rank(ask, world_of(photo), Profile().weighing(multipliers))


def _read(path: Path, kind: type[StructT]) -> StructT:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as missing:
        raise Invalid(f"there is no file {path}") from missing
    except msgspec.DecodeError as wrong:
        raise Invalid(f"{path}: {wrong}") from wrong


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="moorage schedule",
        description="Replay decisions that conductors recorded, by their own weights or by others; or one from files.",
    )
    options.add_argument("--world", type=Path, help="the world (all hosts) to decide on")
    options.add_argument("--ask", type=Path, default=Path("ask.json"), help="what is asked for (default: ask.json)")
    options.add_argument("--export", type=Path, metavar="WORLD", help="write the world of a region to this file")
    options.add_argument(
        "--ask-of", metavar="SERVER", help="with --export: write what was asked for this server (its id) to --ask"
    )
    options.add_argument(
        "--config",
        type=Path,
        help="the region's TOML file: with --export its database, else its multipliers of weights",
    )
    options.add_argument("--data-dir", help="the data directory of `moorage up` (default: moorage-data)")
    add_options(options)
    return options


def main(argv: Sequence[str]) -> int:
    """Run `moorage schedule`. Returns 1 when every host was rejected, and 2 for an error that the caller can correct.

    Raises no Invalid: the message about incomplete arguments, or a file of another format, is printed.
    """
    arguments = parser().parse_args(argv)
    try:
        config = read_config(arguments.config)
        if arguments.data_dir:
            config = msgspec.structs.replace(config, data_dir=arguments.data_dir)
        if arguments.replay or arguments.weights:
            return replay_recorded(arguments, config)
        if arguments.export is not None:
            print("\n".join(export(config, arguments.export, arguments.ask_of, arguments.ask)))
            return 0
        if arguments.world is None:
            raise Invalid(
                "give --world FILE --ask FILE to replay a decision from files, --replay ID (or all) for those that were "
                "recorded, or --export FILE to write a world"
            )
        photo = _read(arguments.world, WorldSnapshot)
        if photo.format != FORMAT:
            raise Invalid(f"{arguments.world} is a {photo.format!r}; this release reads {FORMAT!r}")
        verdict = replay(photo, _read(arguments.ask, Ask), config)
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    print("\n".join(describe(verdict, photo)))
    return 0 if verdict.best else 1
