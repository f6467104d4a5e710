"""`moorage secrets`: manages the keys with which a region encrypts users' data for guests, and passwords in journals.

show        print the keys by name, and how many secrets are encrypted with each
add-key     add a key that only decrypts, for processes that do not share the file; or make the file with its first key
rotate      encrypt with another key (the one that was added, or a new one), then reencrypt
reencrypt   encrypt all secrets with the first key: after a rotation that was interrupted, or an upgrade
drop-old    remove keys with which nothing is encrypted any more
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from moorage.main.config import Config, read_config
from moorage.main.databases import Databases, connect_databases
from moorage.main.private_data_dir import keep_private
from moorage.main.region_key import KEYS_MAX, KeyFile, key_path, new_key, open_seals, region_keys_of
from moorage.model.errors import Invalid, Problem
from moorage.model.private_files import private_directory
from moorage.operations.encryption import Encryption, key_id
from moorage.operations.reencryption import RewriteCounts, reencrypt, walk
from moorage.sql import Database
from moorage.store.region import region_keys

Verb = Callable[[Config, Databases], Awaitable[None]]


async def show(config: Config, databases: Databases) -> None:
    keys = _keys(config)
    seals = await open_seals(config, databases.region)
    counts = await walk(_named(databases), seals, change=False)
    mine = [key_id(each) for each in keys]
    for number, name in enumerate(mine):
        print(f"{name}  {'encrypts' if number == 0 else 'decrypts':9} {counts.by_key.get(name, 0):>9} secrets")
    for name, count in sorted(counts.by_key.items()):
        if name not in mine:
            print(f"{name}  {'unknown':9} {count:>9} secrets, which cannot be read without it")
    print(f"{'in clear':16}  {'':9} {counts.clear:>9} secrets")


async def rotate(config: Config, databases: Databases) -> None:
    """Put the key that was added and never used for encryption first, or else a new key; then encrypt everything with it."""
    file = _file(config)
    await open_seals(config, databases.region)  # refuses a process that does not have the region's key
    used, keys = await databases.region.read(region_keys.used), list(file())
    waiting = [each for each in keys if key_id(each) not in used]
    first = waiting[0] if waiting else new_key()
    file.write(_few([first, *(each for each in keys if each != first)]))
    print(f"{key_id(first)} encrypts from now on", flush=True)
    await anew(config, databases)


async def anew(config: Config, databases: Databases, *, lost: bool = False) -> None:
    """Encrypt all secrets with the first key. `lost`: remove secrets whose keys are lost.

    Raises Invalid when secrets are encrypted with keys that this process does not have, or when not all are encrypted with the
    first key yet.
    """
    if lost:
        await _adopt(databases.region, Encryption(partial(tuple, _keys(config))))
    seals = await open_seals(config, databases.region)
    counts = await reencrypt(_named(databases), seals, drop_lost=lost, progress=_print_result)
    if counts.lost and not lost:
        raise Invalid(
            f"{counts.lost} secrets are encrypted with keys that are not here: copy the keys, or remove the secrets (--lost)"
        )
    if counts.changed or counts.overtaken:
        raise Invalid(
            "not all is encrypted with the first key yet, for much is written: run `moorage secrets reencrypt`"
        )


async def drop_old(config: Config, databases: Databases) -> None:
    """Remove the old keys from the file. Raises Invalid while secrets are still encrypted with other keys than the first."""
    file = _file(config)
    seals = await open_seals(config, databases.region)
    counts = await walk(_named(databases), seals, change=False)
    left = sum(count for name, count in counts.by_key.items() if name != seals.key)
    if left:
        raise Invalid(f"{left} secrets are encrypted with other keys than the first: run `moorage secrets reencrypt`")
    used, keys = await databases.region.read(region_keys.used), file()
    gone = [key_id(each) for each in keys[1:] if key_id(each) in used]
    file.write([each for each in keys if key_id(each) not in gone])
    print("forgotten: " + (", ".join(gone) or "none, no other key ever encrypted"))


def add_key(config: Config) -> None:
    """Add a key to the file, or make the file. It reads no database, because it is the first command on a new machine.

    Raises Invalid when the keys are in the configuration itself, or when there are `KEYS_MAX` keys already.
    """
    if config.secrets.keys:
        raise Invalid("the keys stand in the configuration ([secrets] keys): add one there")
    path, key = key_path(config), new_key()
    if path.exists():
        file = KeyFile(path)
        file.write(_few([*file(), key]))
    else:
        private_directory(path.parent)
        KeyFile.make(path, key)
    print(f"{key_id(key)} is in {path}: copy the file to every process of the region")


def _few(keys: Sequence[str]) -> Sequence[str]:
    if len(keys) > KEYS_MAX:
        raise Invalid(f"{KEYS_MAX} keys are there: run `moorage secrets drop-old`")
    return keys


def _keys(config: Config) -> Sequence[str]:
    keys = region_keys_of(config)
    return keys() if isinstance(keys, KeyFile) else keys


def _file(config: Config) -> KeyFile:
    keys = region_keys_of(config)
    if not isinstance(keys, KeyFile):
        raise Invalid(
            "the keys stand in the configuration ([secrets] keys): put the new one first there, then reencrypt"
        )
    return keys


async def _adopt(region: Database, seals: Encryption) -> None:
    """Make the first key the region's key, whatever its key was before."""
    used = await region.read(region_keys.used)
    if not used or used[0] != seals.key:
        await region.write(lambda tx: region_keys.begin(tx, seals.key, len(used), time.time_ns() // 1000))


def _named(databases: Databases) -> dict[str, Database]:
    return {"region": databases.region, **{str(cell): each for cell, each in databases.cells.items()}}


def _print_result(counts: RewriteCounts) -> None:
    print(f"{counts.changed} rows encrypted anew, {counts.overtaken} written by others meanwhile", flush=True)


async def _run(verb: Verb, config: Config) -> None:
    databases = await connect_databases(config)
    try:
        await verb(config, databases)
    finally:
        await databases.close()


def main(argv: Sequence[str]) -> int:
    """Run `moorage secrets`. Returns 2 for an error that the caller can correct."""
    options = argparse.ArgumentParser(
        prog="moorage secrets", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("verb", choices=("show", "add-key", "rotate", "reencrypt", "drop-old"))
    options.add_argument("--config", type=Path, help="the TOML file of the region")
    options.add_argument("--data-dir", help="the data directory of `moorage up` (default: moorage-data)")
    options.add_argument(
        "--lost", action="store_true", help="reencrypt: the old keys are lost; what they encrypted is removed"
    )
    arguments = options.parse_args(argv)
    try:
        config = read_config(arguments.config)
        if arguments.data_dir:
            config = msgspec.structs.replace(config, data_dir=arguments.data_dir)
        keep_private(config.data)
        if arguments.verb == "add-key":
            add_key(config)
            return 0
        verbs: dict[str, Verb] = {
            "show": show,
            "rotate": rotate,
            "reencrypt": partial(anew, lost=arguments.lost),
            "drop-old": drop_old,
        }
        asyncio.run(_run(verbs[arguments.verb], config))
    except Problem as problem:
        print(f"moorage secrets: {problem.public}")
        return 2
    return 0
