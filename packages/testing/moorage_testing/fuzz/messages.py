"""Messages to conductors and agents: of the right shape first, then spoiled."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moorage.bus import legacy_subjects, subjects
from moorage.bus.messages import MESSAGES, PAYLOADS
from moorage.bus.verbs import Verb
from moorage.model.ids import CellId, ConductorId
from moorage_testing.fuzz import shapes
from moorage_testing.fuzz.random_values import FuzzDice
from moorage_testing.fuzz.requests import KnownNames

KINDS = (subjects.HEARTBEAT, subjects.REPORT, subjects.RETURNED)
HINTS = (subjects.EVENTS, subjects.PICTURE)
STRANGERS = 20
"""Hosts that there are not: a conductor may remember each of them."""
SUBJECT_CHARACTERS_MAX = 200
LARGEST_BYTES = 900_000


class Messages:
    """A stream of subjects and payloads, of one seed."""

    def __init__(self, dice: FuzzDice, world: KnownNames, hosts: Sequence[tuple[str, str]]) -> None:
        """`hosts`: cells and names."""
        self.dice, self._hosts = dice, list(hosts)
        strangers = [f"stranger{number}" for number in range(STRANGERS)]
        known: Mapping[str, Sequence[Any]] = {
            "cell": [*(cell for cell, _ in hosts), "cell9"],
            "host": [*(host for _, host in hosts), *strangers[:3]],
            "server": [*world.ids.get("servers", ()), *(dice.uuid() for _ in range(20))],
            "operation": [dice.uuid() for _ in range(20)],
            "verb": [verb.value for verb in Verb],
            "boot": ["boot1", "boot2"],
            "reply_to": ["conductor1", ""],
        }
        self._cells = [cell for cell, _ in hosts]
        self._strangers = strangers
        self._shapes = shapes.Shapes(dice, known)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        while True:
            payload = self._payload()
            if len(payload) <= LARGEST_BYTES:
                yield self._subject(), payload

    def _subject(self) -> str:
        dice = self.dice
        cell, host = dice.choice(self._hosts)
        if dice.chance(0.1):
            host = dice.choice(self._strangers)
        to, place = CellId(cell), dice.randrange(9)
        conductor = ConductorId(dice.one("conductor1", dice.ordinary_text()))
        if place < 3:
            return subjects.from_host(to, host, dice.choice(KINDS))
        if place == 3:
            return subjects.result_from(to, host, conductor)
        if place < 6:
            return subjects.to_host(to, host)
        if place == 6:
            return dice.one(legacy_subjects.of_cell(to, dice.choice(KINDS)), legacy_subjects.result_for(to, conductor))
        if place == 7:
            return dice.one(*HINTS, subjects.cell_hint(to), subjects.to_conductor(conductor))
        odd = subjects.token(dice.text().encode("utf-8", "replace").decode())[:SUBJECT_CHARACTERS_MAX] or "x"
        return dice.one(
            f"{subjects.ROOT}.{odd}",
            f"{subjects.ROOT}.cell.{odd}.from.{odd}.{odd}",
            f"{subjects.ROOT}.hint.conductor.{odd}",
        )

    def _payload(self) -> bytes:
        dice = self.dice
        if dice.chance(0.03):
            return dice.randbytes(dice.one(0, 1, 20, 2_000))
        value = self._shapes.make(shapes.of(dice.choice(MESSAGES)))
        if isinstance(value, dict) and "payload" in value and dice.chance(0.8):
            value["payload"] = self._shapes.make(shapes.of(dice.choice(PAYLOADS)))
        if not dice.chance(0.3):
            value = dice.spoiled(value)
        data = dice.body(value)
        return dice.bytes(data) if dice.chance(0.15) else data
