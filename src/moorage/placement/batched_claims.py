"""Many claims in one transaction, each taken or refused by itself, as if they had come one after the other (P10).

`claims.claim` is for the one claim that shares its transaction with an operation's line.  Here several consumers' claims are
judged together on rows that are locked once; the outcome is that of `claims.claim` for each of them in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from moorage.model.errors import Internal
from moorage.model.ids import ProviderId
from moorage.model.verdict import Claimed, Row, Shortage
from moorage.model.world import Ask, Choice
from moorage.placement import claims
from moorage.sql import Tx
from moorage.store.region.placement import batched_claims as sql
from moorage.store.region.placement import groups, providers, summed_claims
from moorage.store.region.placement.batched_claims import Accepted, LockedInventory
from moorage.store.region.placement.claims import InventoryDelta, Key, Owner
from moorage.store.region.placement.providers import now_s
from moorage.store.region.placement.summed_claims import Kind, Part, Sums
from moorage.store.region.placement.tables import Stamp, stamp


class ClaimRequest(NamedTuple):
    """One consumer's claim; what the consumer holds already it keeps."""

    owner: Owner
    choice: Choice
    ask: Ask


class _Refused(NamedTuple):
    """Which rows were short, which not offered so; or the group had no place."""

    short: Sequence[InventoryDelta] = ()
    gone: Sequence[InventoryDelta] = ()
    group: bool = False
    stale: tuple[ProviderId, ...] = ()


def claim(tx: Tx, bids: Sequence[ClaimRequest]) -> list[Claimed | Shortage]:
    """One answer per bid, in their order. The transaction is to be committed whatever they are: who is refused wrote nothing.

    The short way is tried first (`sums`); where not all of it fits, all that the transaction wrote is taken back, and its function
    is run once more (`tx.again`).
    """
    if len(bids) > sql.CLAIMS_PER_BATCH_MAX:
        raise Internal("too many claims at once", private=str(len(bids)))
    if len({bid.owner.consumer for bid in bids}) != len(bids):
        raise Internal("a consumer may come once in a batch")
    if any(claims.asks_functions(bid.ask) for bid in bids):
        raise Internal("virtual functions are chosen one claim at a time")
    if tx.is_again or any(bid.ask.group is not None for bid in bids):
        return _one_by_one(tx, bids)
    return _together(tx, bids) or tx.again()


def _together(tx: Tx, bids: Sequence[ClaimRequest]) -> list[Claimed | Shortage]:
    """Nobody is judged by himself: all fit. Nobody at all: somebody does not, or holds something already."""
    book = Sums()
    flat: dict[int, tuple[Kind, str]] = {}
    taken: list[list[tuple[str, Kind]]] = []
    for bid in bids:
        ask, host = bid.ask, bid.choice.host
        book.own(bid.owner, host)
        book.see(bid.choice.versions)
        if ask.nics or ask.groups:
            mine = _kinds_of(bid)
            for provider, kind in mine:
                book.take(bid.owner.consumer, provider, book.kind(kind))
        else:
            known = flat.get(id(ask))
            if known is None:
                kind = tuple(Part(name, n, n, n, n) for name, n in ask.resources.items() if n > 0)
                known = flat[id(ask)] = kind, book.kind(kind)
            mine = [(str(host), known[0])]
            book.take(bid.owner.consumer, host, known[1])
        taken.append(mine)
    now = summed_claims.take(tx, book, stamp(tx), now_s())
    if now is None:
        return []
    rows: dict[tuple[str, Kind], tuple[Row, ...]] = {}
    return [
        Claimed(bid.owner.consumer, bid.choice, tuple(chain.from_iterable(_rows(each, now, rows) for each in mine)))
        for bid, mine in zip(bids, taken, strict=True)
    ]


def _kinds_of(bid: ClaimRequest) -> list[tuple[str, Kind]]:
    """By provider, what a claim takes there."""
    found: dict[str, list[Part]] = {}
    for want in claims.wants(claims.portions(bid.choice, bid.ask), {}):
        found.setdefault(want.provider, []).append(Part(want.resource, want.change, want.least, want.most, want.unit))
    return [(provider, tuple(parts)) for provider, parts in found.items()]


def _rows(
    taken: tuple[str, Kind], now: dict[Key, LockedInventory], known: dict[tuple[str, Kind], tuple[Row, ...]]
) -> tuple[Row, ...]:
    """Made once for all who take the same of the same provider."""
    rows = known.get(taken)
    if rows is None:
        provider = ProviderId(taken[0])
        levels = [(part, now[provider, part.resource]) for part in taken[1]]
        rows = known[taken] = tuple(
            Row(provider, part.resource, part.amount, at.used, at.cap, at.version) for part, at in levels
        )
    return rows


def _one_by_one(tx: Tx, bids: Sequence[ClaimRequest]) -> list[Claimed | Shortage]:
    """Each on the rows as they are, less what was accepted before it; providers are locked before inventories, as everywhere."""
    at = stamp(tx)
    seen = {each for bid in bids for each in bid.choice.versions}
    versions = providers.lock(tx, seen) if seen else {}
    wanted = [claims.wants(claims.portions(bid.choice, bid.ask), {}) for bid in bids]
    levels = sql.lock(tx, ((want.provider, want.resource) for wants in wanted for want in wants))
    left = {key: level.cap - level.used for key, level in levels.items()}
    refusals: list[_Refused | None] = []
    accepted: list[Accepted] = []
    for bid, wants in zip(bids, wanted, strict=True):
        refused = _look_again(bid, versions) or _judge(wants, levels, left) or _join(tx, bid, at)
        refusals.append(refused)
        if refused is None:
            amounts = {(want.provider, want.resource): want.change for want in wants}
            for key, amount in amounts.items():
                left[key] -= amount
            accepted.append(Accepted(_owner(bid), amounts))
    now = levels | sql.take(tx, accepted, at, now_s())
    return [
        _claimed(bid, wants, now) if refused is None else _shortage(tx, bid, refused, now)
        for bid, wants, refused in zip(bids, wanted, refusals, strict=True)
    ]


def _look_again(bid: ClaimRequest, now: Mapping[ProviderId, int]) -> _Refused | None:
    """None: its providers are as they were when they were chosen."""
    stale = tuple(sorted(uuid for uuid, version in bid.choice.versions.items() if now.get(uuid) != version))
    return _Refused(stale=stale) if stale else None


def _judge(
    wants: Iterable[InventoryDelta], levels: dict[Key, LockedInventory], left: dict[Key, int]
) -> _Refused | None:
    """None: it fits, in portions that are given, beside those that were accepted before it."""
    short: list[InventoryDelta] = []
    gone: list[InventoryDelta] = []
    for want in wants:
        key = want.provider, want.resource
        level = levels.get(key)
        if level is None:
            gone.append(want)
        elif want.change > left[key]:
            short.append(want)
        elif want.least < level.min_unit or want.most > level.max_unit or want.unit % level.step:
            gone.append(want)
    return _Refused(short, gone) if short or gone else None


def _join(tx: Tx, bid: ClaimRequest, at: Stamp) -> _Refused | None:
    """The rows of the host are ours by now, so a member that is counted stays counted."""
    if bid.ask.group is None or groups.join(tx, bid.ask.group, bid.choice.host, at):
        return None
    return _Refused(group=True)


def _owner(bid: ClaimRequest) -> Owner:
    group = bid.ask.group
    return bid.owner._replace(
        host=bid.choice.host,
        server_group=None if group is None else group.id,
        group_policy=None if group is None else group.policy,
    )


def _row(want: InventoryDelta, now: dict[Key, LockedInventory]) -> Row:
    level = now[want.provider, want.resource]
    return Row(want.provider, want.resource, want.change, level.used, level.cap, level.version)


def _claimed(bid: ClaimRequest, wants: Iterable[InventoryDelta], now: dict[Key, LockedInventory]) -> Claimed:
    group = None if bid.ask.group is None else (bid.ask.group.id, None, bid.choice.host)
    return Claimed(bid.owner.consumer, bid.choice, tuple(_row(want, now) for want in wants), group)


def _shortage(tx: Tx, bid: ClaimRequest, refused: _Refused, now: dict[Key, LockedInventory]) -> Shortage:
    """With the numbers after the whole batch, which are the newest."""
    if refused.group and bid.ask.group is not None:
        return Shortage(bid.choice, group=bid.ask.group.id, group_home=groups.home(tx, bid.ask.group.id))
    if refused.stale:
        return Shortage(bid.choice, stale=refused.stale)
    rows = tuple(_row(want, now) for want in refused.short)
    return Shortage(bid.choice, rows, tuple((want.provider, want.resource) for want in refused.gone))
