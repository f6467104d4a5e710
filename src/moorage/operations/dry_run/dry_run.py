"""Predicts an operation without executing it (N12): the hosts in order, why the others are refused, and the calls.

The request was processed like a real one up to its first write (`preview.py`), so the scheduler gets the same request,
made by the same function, as for the real first claim. Ports that are not made yet count as they will be.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.model.errors import Problem, Unavailable
from moorage.model.operation import Accepted
from moorage.model.server import Server
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice
from moorage.operations import unshelve_input
from moorage.operations.boot.boot_input import Boot
from moorage.operations.boot.boot_input import ask_of as ask_of_boot
from moorage.operations.boot.expected_ports import expected_with_addresses
from moorage.operations.context import SagaContext
from moorage.operations.dry_run.planned_calls import CALLS, PlannedCall
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.live_migrate import live_migrate_input, prepare_destination
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.registry import SAGAS
from moorage.operations.resize import prepare_resize, resize_input
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps import move_ports, other_cells
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.other_cells import Takes
from moorage.operations.steps.segment_change import Tries
from moorage.operations.unshelve_input import Unshelve
from moorage.scheduler.trial import Trial


class HostCandidate(msgspec.Struct, frozen=True):
    """A host that fits."""

    host: str
    cell: str
    segments: tuple[str, ...] = ()
    """Names of the segments whose addresses would be taken."""
    providers: dict[str, str] = {}
    """Request group → the provider that would serve it."""
    weights: dict[str, float] = {}


class PlannedStep(msgspec.Struct, frozen=True):
    name: str
    calls: tuple[PlannedCall, ...] = ()


class ServerPlan(msgspec.Struct, frozen=True):
    """The prediction for one server."""

    operation: str
    server: str
    name: str
    hosts: tuple[HostCandidate, ...]
    """Best first; empty when it needs no host or none fits."""
    fault: str
    """The fault with which it would fail; empty when it would succeed."""
    verdict: Verdict | None
    steps: tuple[PlannedStep, ...]
    chosen_by_servers: bool = False
    """Whether hints or a group of the owner's choose its hosts: what is said of those hosts is said of few."""


async def plan(context: SagaContext, accepted: Sequence[Accepted]) -> tuple[ServerPlan, ...]:
    """Predict the servers of one request one after the other, each in the room that earlier ones leave."""
    await context.placement.catch_up()
    trial = Trial(context.placement.world(), context.placement.rank_on)
    return tuple([await _plan_one(context, each, trial) for each in accepted])


async def _plan_one(context: SagaContext, new: Accepted, trial: Trial) -> ServerPlan:
    saga = SAGAS[new.saga]
    input: Any = msgspec.json.decode(new.asked, type=saga.input_type)
    server: Server = input.server
    cards, tries = await wanted(context, input)
    fault, verdict = await _refusal(context, input, cards), None
    if isinstance(input, Boot) and input.no_room is not None:
        verdict, fault = Verdict((), input.no_room.ledger), input.no_room.fault
    elif tries is not None and not fault:
        verdict = placed(trial, tries)
        fault = "" if verdict.best else verdict.fault()
    hosts = () if verdict is None else tuple(_candidate(trial, each, verdict) for each in verdict.best)
    calls = CALLS.get(saga.name, {})
    steps = tuple(PlannedStep(each.name, _calls(calls, each.name, input, cards)) for each in saga.steps)
    operation = saga.name.partition("/")[0]
    near = tries is not None and any(_is_chosen(each) for each in (*tries.asks, tries.widest))
    return ServerPlan(operation, server.id, server.name, hosts, fault, verdict, steps, near)


def _is_chosen(ask: Ask) -> bool:
    return ask.same_host is not None or bool(ask.different_host) or ask.group is not None


def placed(trial: Trial, tries: Tries) -> Verdict:
    """The verdict of the requests as a claim tries them, one after the other."""
    refused: list[Verdict] = []
    for ask in tries.asks:
        refused.append(trial.place(ask))
        if refused[-1].best:
            return refused[-1]
    if len(tries.asks) > 1 and not (verdict := trial.place(tries.widest)).best:
        refused.append(verdict)
    return refused[-1]


async def wanted(context: SagaContext, input: Any) -> tuple[Cards, Tries | None]:
    """The ports concerned, and the requests to the scheduler; None when the server stays where it is.

    Raises Unavailable for a server that has no cell yet, and what the requests raise.
    """
    if isinstance(input, Boot):
        cards = Cards(await expected_with_addresses(context, input), input.networks)
        return cards, _one(ask_of_boot(input, input.networks, cards.ports, not_on=()))
    build = _MOVES.get(type(input))
    if build is None:
        return Cards(), None
    server: Server = input.server
    if server.cell is None:
        raise Unavailable("The instance is in no cell yet; try again.")
    cards = await cards_of(context, server)
    built = build(input, server, cards, server.cell, ())
    tries = built if isinstance(built, Tries) else _one(built)
    if input.cross_cell:
        reach = await other_cells.reach_of(context, server, cards, _TAKES[type(input)])
        tries = other_cells.of_all_cells(tries, server.cell, reach, out=context.cells.out())
    return cards, tries


def _one(ask: Ask) -> Tries:
    return Tries((ask,), ask)


_MOVES: Mapping[type[Any], Callable[..., Ask | Tries]] = {
    Resize: resize_input.tries_of,
    LiveMigrate: live_migrate_input.ask_of,
    Unshelve: unshelve_input.tries_of,
    Evacuate: resize_input.tries_of,
}


_TAKES: Mapping[type[Any], Takes] = {
    Resize: other_cells.RESIZE,
    LiveMigrate: other_cells.LIVE,
    Unshelve: other_cells.ANEW,
    Evacuate: other_cells.ANEW,
}


async def _refusal(context: SagaContext, input: Any, cards: Cards) -> str:
    """The refusal of a step before the claim."""
    try:
        if isinstance(input, Resize):
            prepare_resize.refuse_shrinking(input.server, input.flavor)
            move_ports.refuse_old_hosts(context, str(input.server.host), cards.ports, "moved")
        elif isinstance(input, LiveMigrate):
            await prepare_destination.refuse_guarantees(context, cards, str(input.server.host))
        elif isinstance(input, Evacuate):
            move_ports.refuse_old_hosts(context, str(input.server.host), cards.ports, "evacuated")
    except Problem as refused:
        return refused.public
    return ""


def _calls(
    calls: Mapping[str, Callable[[Any, Cards], tuple[PlannedCall, ...]]], step: str, input: Any, cards: Cards
) -> tuple[PlannedCall, ...]:
    made = calls.get(step)
    return () if made is None else tuple(each for each in made(input, cards) if each.times)


def _candidate(trial: Trial, choice: Choice, verdict: Verdict) -> HostCandidate:
    known = trial.world.segments
    names = trial.world.device_names(choice.host) if choice.providers else {}
    return HostCandidate(
        host=choice.name,
        cell=choice.cell,
        segments=tuple(known[each].name for each in choice.segments if each is not None and each in known),
        providers={group: names.get(each, choice.name) for group, each in choice.providers.items()},
        weights=verdict.ledger.weights.get(choice.name, {}),
    )
