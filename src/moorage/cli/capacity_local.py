"""Answers questions about capacity from a file: an invented fleet, or a saved world. It uses the same functions as the API."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from moorage.cli.progress import Progress
from moorage.model.errors import Invalid
from moorage.model.fleet import FORMAT as FLEET
from moorage.model.fleet import Fleet, read_fleet
from moorage.model.json_types import JsonObject
from moorage.model.resident import Resident
from moorage.model.world import Ask, World
from moorage.model.world_snapshot import FORMAT as SNAPSHOT
from moorage.model.world_snapshot import WorldSnapshot, world_of
from moorage.scheduler.capacity import Fill, answer, count
from moorage.scheduler.failover import Kind, Residents, fail
from moorage.scheduler.fleet_world import ask_for, build
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.world_changes import Added, Without, changed, with_twins

BYTES_MAX = 1 << 30
"""Limit of a file."""
FILL_SLICE = 20
KINDS = ("host", "aggregate", "segment", "cell")
PROFILE = Profile()


class Loaded(NamedTuple):
    world: World
    residents: tuple[Resident, ...]
    fleet: Fleet | None
    """None: the file is a saved world."""


class _Format(msgspec.Struct):
    format: str = ""


def load(path: Path, changes: JsonObject) -> Loaded:
    """Read a file. Raises Invalid when it does not exist, or when its contents are wrong."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise Invalid(f"{path} has more than {BYTES_MAX >> 20} MiB.")
        content = path.read_bytes()
        form = msgspec.json.decode(content, type=_Format).format
        if form == FLEET:
            fleet: Fleet | None = read_fleet(content)
            bar = Progress("servers of the file")
            assert fleet is not None
            built = build(fleet, PROFILE, bar.update)
            bar.close()
            world, residents = built.world, built.residents
        elif form == SNAPSHOT:
            snapshot, fleet = msgspec.json.decode(content, type=WorldSnapshot), None
            world, residents = world_of(snapshot), snapshot.residents
        else:
            raise Invalid(f"{path} is a {form!r}; this release reads {FLEET!r} and {SNAPSHOT!r}.")
    except OSError as missing:
        raise Invalid(f"{path} cannot be read: {missing.strerror}") from missing
    except msgspec.DecodeError as wrong:
        raise Invalid(f"{path}: {wrong}") from wrong
    without = _decoded(changes["without"], Without)
    return Loaded(changed(world, without, _decoded(changes["added"], Added)), residents, fleet)


def _decoded(words: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(words, type=kind)
    except msgspec.ValidationError as wrong:
        raise Invalid(str(wrong)) from wrong


def capacity(arguments: argparse.Namespace, changes: JsonObject) -> JsonObject:
    """As the API answers."""
    loaded = load(arguments.world, changes)
    ask = with_twins(_ask(arguments, loaded), loaded.world)
    counted = count(ask, loaded.world, PROFILE)
    fill: Fill | None = None
    if not counted.sure:
        fill, bar = Fill(ask, loaded.world, lambda one, current: rank(one, current, PROFILE)), Progress("placed")
        while fill.step(FILL_SLICE):
            bar.update(len(fill.placed), counted.at_most)
        bar.close()
    result: JsonObject = msgspec.to_builtins(answer(counted, fill))
    rows = sorted(result["hosts"], key=lambda each: (-each["fits"], each["host"]))
    return result | {"hosts": rows[: arguments.hosts], "hosts_left_out": max(0, len(rows) - arguments.hosts)}


def _ask(arguments: argparse.Namespace, loaded: Loaded) -> Ask:
    if loaded.fleet is None:
        if arguments.ask is None:
            raise Invalid("A saved world has no flavors and networks: give the request with --ask FILE.")
        try:
            return msgspec.json.decode(arguments.ask.read_bytes(), type=Ask)
        except OSError as missing:
            raise Invalid(f"{arguments.ask} cannot be read: {missing.strerror}") from missing
        except msgspec.DecodeError as wrong:
            raise Invalid(f"{arguments.ask}: {wrong}") from wrong
    if not arguments.flavor:
        raise Invalid("Say which --flavor of the file.")
    fleet, names = loaded.fleet, list[str]()
    for number, each in enumerate(arguments.network):
        name, wanted = parse_network(each)
        if wanted and name in fleet.networks:
            wanted["vnic_type"] = wanted.get("vnic_type", fleet.networks[name].vnic_type)
            guaranteed = msgspec.structs.replace(fleet.networks[name], **wanted)
            name = f"{name} ({number})"
            fleet = msgspec.structs.replace(fleet, networks={**fleet.networks, name: guaranteed})
        names.append(name)
    ask = ask_for(fleet, arguments.flavor, names, arguments.group)
    return msgspec.structs.replace(ask, availability_zone=arguments.availability_zone)


def failovers(arguments: argparse.Namespace, changes: JsonObject, bar: Progress) -> list[JsonObject]:
    """As the API answers."""
    loaded = load(arguments.world, changes)
    wanted = failures(arguments)
    if arguments.each:
        wanted += [(arguments.each, name) for name in _all(loaded.world, arguments.each)]
    rows: list[JsonObject] = []
    known = Residents(each for each in loaded.residents if each.host in loaded.world.slots)
    for kind, name in wanted:
        outcome = fail(loaded.world, kind, name, known, PROFILE)
        rows.append(msgspec.to_builtins(outcome) | {"survives": outcome.survives})
        bar.update(len(rows), len(wanted))
    return rows


def _all(world: World, kind: str) -> list[str]:
    match kind:
        case "aggregate":
            return [each.name for each in world.aggregates if (each.hosts & world.present).any()]
        case "cell":
            return [str(each) for at, each in enumerate(world.cell_names) if (world.present & (world.cell == at)).any()]
        case "segment":
            return [str(each) for each in world.segments]
        case _:
            return [world.names[slot] for slot in np.flatnonzero(world.present).tolist()]


def failures(arguments: argparse.Namespace) -> list[tuple[Kind, str]]:
    """Parse the failures. Raises Invalid when a text is not KIND=NAME."""
    parsed: list[tuple[Kind, str]] = []
    for text in arguments.fails:
        kind, _, name = text.partition("=")
        if kind not in KINDS or not name:
            raise Invalid(f"{text!r} is not KIND=NAME, with host, aggregate, segment or cell before the sign.")
        parsed.append((kind, name))
    return parsed


WORDS = {"egress": "egress_kbps", "ingress": "ingress_kbps", "vnic": "vnic_type"}


def parse_network(text: str) -> tuple[str, JsonObject]:
    """Parse a network and its guarantees. Raises Invalid when the text has another form."""
    name, *others = text.split(",")
    wanted: JsonObject = {}
    for each in others:
        key, _, value = each.partition("=")
        if key not in WORDS or not value:
            raise Invalid(f"{each!r} is not egress=KBPS, ingress=KBPS or vnic=TYPE.")
        wanted[WORDS[key]] = value if key == "vnic" else number(value, each)
    return name, wanted


def number(text: str, where: str) -> int:
    """Parse a whole number. Raises Invalid when it is not one."""
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise Invalid(f"{where}: {text!r} is no whole number.")
    return int(text)
