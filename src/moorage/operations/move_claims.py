"""The claim of a move: the server's holdings go to the move, and the destination's are claimed, in one transaction
(RULES §11).
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from moorage.model.decision_log import Subject
from moorage.model.errors import NoCapacity
from moorage.model.guest import PowerState
from moorage.model.ids import NetworkId
from moorage.model.network import Port
from moorage.model.server import Server
from moorage.model.verdict import Claimed, DecisionRecord, Shortage, Verdict
from moorage.model.world import Ask, Choice
from moorage.operations.boot.boot import Claim
from moorage.operations.steps import groups, segment_change
from moorage.operations.steps.boot_volumes import with_attachments
from moorage.operations.steps.claims import first, granted
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.moving import MoveRun, MovingRun
from moorage.operations.steps.ports import VIF_PLUGGED, nics_after
from moorage.operations.steps.segment_change import Tries
from moorage.operations.unshelve_input import addresses_of
from moorage.sql import Tx
from moorage.store.region import inbox
from moorage.store.region.placement.claim_statements import Owner

ROUNDS_MAX = 50


async def claimed(run: MovingRun, input: Ask | Tries, cards: Cards) -> Claim:
    """Claim the best host that has room; if another claim was faster, try the next (N1). The move then holds what the
    server held.

    To be called in a region step. Raises NoCapacity when no host fits.
    """
    tries = input if isinstance(input, Tries) else Tries((input,), input)
    return await claimed_or_redrawn(run, tries, partial(_claimed, run, cards), cards)


Claiming: TypeAlias = Callable[[Ask, frozenset[int], list[str]], Awaitable[Claim | Verdict]]


async def claimed_or_redrawn(run: MoveRun, tries: Tries, claiming: Claiming, cards: Cards) -> Claim:
    """As `claimed_in_turn`; but before NoCapacity the pools of routed networks are read again, whatever is known of them: addresses of
    the segments to which the server could go may have been freed a moment ago.
    """
    try:
        return await claimed_in_turn(run, tries, claiming)
    except NoCapacity:
        redraw, routed = run.context.redraw_segments, [each for each in cards.networks.values() if each.routed]
        if redraw is None or not routed:
            raise
        for each in routed:
            await redraw(NetworkId(each.id))
        return await claimed_in_turn(run, tries, claiming)


async def claimed_in_turn(run: MoveRun, tries: Tries, claiming: Claiming) -> Claim:
    """Return the first claim that succeeds, of several requests in order. Raises NoCapacity with the reasons of every
    host.
    """
    lost: list[str] = []
    refused: list[Verdict] = []
    for ask in tries.asks:
        answer = await claiming(ask, tries.may_leave, lost)
        if isinstance(answer, Claim):
            return answer
        refused.append(answer)
    if len(tries.asks) > 1 and not (widest := run.context.placement.rank(tries.widest)).best:
        refused.append(widest)
    verdict = refused[-1]
    raise NoCapacity(verdict.fault(), private=msgspec.json.encode(verdict.ledger).decode())


async def _claimed(
    run: MovingRun, cards: Cards, ask: Ask, may_leave: frozenset[int], lost: list[str]
) -> Claim | Verdict:
    """The claim, or why there is none; `lost` counts the choices that another claim took first."""
    engine = run.context.placement
    subject = Subject(run.input.server.id, run.operation, run.attempt, "move", run.input.migration)
    verdict, fresh = engine.decide(ask, subject), False
    for _ in range(ROUNDS_MAX):
        for choice in verdict.best:
            subnets = segment_change.subnets_for(cards, choice, may_leave)
            claim = _claim_of(run, cards, choice, ask, subnets, verdict.ledger, tuple(lost))
            with engine.holding(choice, ask):
                answer = await _take(run, cards, choice, ask, claim)
            if isinstance(answer, Claim):
                return answer
            lost.append(answer.why())
            if answer.stale:
                break
        if fresh and not verdict.best:
            break
        verdict, fresh = await engine.decide_fresh(ask, subject), True
    return verdict


async def _take(run: MovingRun, cards: Cards, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
    engine, server = run.context.placement, run.input.server

    def work(tx: Tx) -> tuple[Claim, Claimed]:
        answer = engine.move(
            tx,
            Owner(server.id, server.project, server.user, operation=run.operation, attempt=run.attempt),
            run.input.migration,
            choice,
            ask,
            stays=addresses_of(cards),
            leaves=segment_change.leaves(cards, claim.subnets),
        )
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        inbox.drop(tx, server.id, VIF_PLUGGED)
        profiles = groups.with_functions(claim.profiles, cards.ports, answer.functions)
        return msgspec.structs.replace(claim, profiles=profiles), answer

    answer = await run.commit(work, result=first)
    return granted(engine, answer)


async def given_back(run: MovingRun, cards: Cards | None = None) -> None:
    """The undo: the server holds again what the move held. `cards`: the NICs as they were, where the move may have
    given them other addresses.
    """
    engine, before = run.context.placement, None if cards is None else addresses_of(cards)
    engine.settle(
        await run.commit(lambda tx: engine.move_back(tx, run.input.server.id, run.input.migration, before=before))
    )


def destination(claim: Claim, address: str = "") -> dict[str, Any]:
    """The fields of the move's record for the claimed host. `address`: where the host receives guests; its name if it
    did not report one.
    """
    return {
        "dest_host": claim.name,
        "dest_node": claim.node,
        "dest_address": address or claim.name,
        "dest_provider": claim.host,
    }


def on_claimed(
    server: Server,
    claim: Claim,
    cards: Cards | None,
    ports: tuple[Port, ...] | None,
    attachments: dict[str, str] | None,
    state: PowerState | None,
) -> Server:
    """The server's record on the claimed host. A field that is None, because it was forgotten, stays as it is."""
    return msgspec.structs.replace(
        with_attachments(server, attachments),
        host=claim.name,
        node=claim.node,
        provider=claim.host,
        availability_zone=claim.availability_zone,
        nics=server.nics if ports is None or cards is None else nics_after(server, ports, cards.networks),
        power_state=server.power_state if state is None else int(state),
        fault=None,
    )


def _claim_of(
    run: MovingRun,
    cards: Cards,
    choice: Choice,
    ask: Ask,
    subnets: dict[int, str],
    ledger: DecisionRecord,
    lost: tuple[str, ...],
) -> Claim:
    world = run.context.placement.world()
    slot_of = world.slots[choice.host]
    return Claim(
        host=choice.host,
        name=choice.name,
        node=world.nodes[slot_of],
        cell=choice.cell,
        availability_zone=world.zone_names[int(world.zone[slot_of])],
        level=int(world.level[slot_of]),
        subnets=subnets,
        ledger=ledger,
        lost=lost[-20:],
        profiles=groups.profiles(cards.ports, choice) if ask.groups else {},
        given=groups.given(ask.groups, choice, world),
        attempt=run.attempt,
    )
