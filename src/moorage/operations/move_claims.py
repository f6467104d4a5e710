"""The claim of a move: what a server holds goes to the move, and what it is to hold elsewhere is taken, in one transaction (RULES §11)."""

from typing import Protocol

import msgspec

from moorage.model.errors import NoCapacity
from moorage.model.verdict import Claimed, Ledger, Row, Shortage
from moorage.model.world import Ask, Choice
from moorage.operations.boot import Claim
from moorage.operations.rooms import Rooms
from moorage.operations.steps import groups
from moorage.operations.steps.doing import Asked
from moorage.operations.steps.guest_again import Cards
from moorage.operations.steps.ports import VIF_PLUGGED
from moorage.operations.unshelve import addresses_of
from moorage.saga import Run
from moorage.sql import Tx
from moorage.store.region import inbox

ROUNDS_MAX = 50


class Moving(Asked, Protocol):
    """What is asked of a move."""

    @property
    def migration(self) -> str: ...


MovingRun = Run[Moving, Rooms]


async def claimed(run: MovingRun, ask: Ask, cards: Cards) -> Claim:
    """The best willing host; a loser takes the next (N1). What the server held is held by the move from then on.

    The work of a region step. Raises NoCapacity.
    """
    engine = run.rooms.placement
    verdict, fresh = engine.rank(ask), False
    lost: list[str] = []
    for _ in range(ROUNDS_MAX):
        for choice in verdict.best:
            claim = _claim_of(run, cards, choice, ask, verdict.ledger, tuple(lost))
            with engine.holding(choice, ask):
                answer = await _take(run, cards, choice, ask, claim)
            if isinstance(answer, Claim):
                return answer
            lost.append(answer.why())
            if answer.stale:
                break
        if fresh and not verdict.best:
            break
        verdict, fresh = await engine.rank_fresh(ask), True
    raise NoCapacity(verdict.fault(), private=msgspec.json.encode(verdict.ledger).decode())


async def _take(run: MovingRun, cards: Cards, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
    engine, server = run.rooms.placement, run.asked.server
    taken: list[Claimed] = []

    def work(tx: Tx) -> Claim:
        answer = engine.move(
            tx,
            server.id,
            run.asked.migration,
            choice,
            ask,
            project=server.project,
            user=server.user,
            operation=run.operation,
            attempt=run.attempt,
            stays=addresses_of(cards),
        )
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        inbox.drop(tx, server.id, VIF_PLUGGED)
        taken[:] = [answer]
        profiles = groups.with_functions(claim.profiles, cards.ports, answer.functions)
        return msgspec.structs.replace(claim, profiles=profiles)

    answer: Claim | Shortage = await run.commit(work)
    if isinstance(answer, Shortage):
        engine.lost(answer)
    else:
        engine.claimed(taken[0])
    return answer


async def given_back(run: MovingRun) -> None:
    """The undo: what the move held is the server's again."""
    rows: list[Row] = []

    def work(tx: Tx) -> None:
        rows[:] = run.rooms.placement.move_back(tx, run.asked.server.id, run.asked.migration)

    await run.commit(work)
    run.rooms.placement.settle(rows)


def _claim_of(run: MovingRun, cards: Cards, choice: Choice, ask: Ask, ledger: Ledger, lost: tuple[str, ...]) -> Claim:
    world = run.rooms.placement.world()
    slot_of = world.slots[choice.host]
    return Claim(
        host=choice.host,
        name=choice.name,
        node=world.nodes[slot_of],
        cell=choice.cell,
        availability_zone=world.zone_names[int(world.zone[slot_of])],
        level=int(world.level[slot_of]),
        ledger=ledger,
        lost=lost[-20:],
        profiles=groups.profiles(cards.ports, choice) if ask.groups else {},
        given=groups.given(ask.groups, choice, world),
        attempt=run.attempt,
    )
