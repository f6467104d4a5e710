"""Decides which guests belong on a host: compares what its cell and the region know of each with what is there (RULES
§10, §22).

A guest is judged as wrong only by a fact that names its server: it was deleted, or it is elsewhere. While an operation
holds a server, its fencing tokens decide; only what is older than the operation, or than its attempt, is over. An
unknown guest is left alone, and reported.

A server that is being moved has a guest on each of two hosts, one of them off, until the move is confirmed or reverted:
while its migration is open, the guest on the source host belongs there. The source host knows whether it is to run: it
was told to switch it off.

A server that moves into another cell has a record in both for a while. A row shows that a guest belongs here only when
the region names this cell, or when the operation that holds the server has its claim on the host; otherwise only an
open migration keeps a guest. So when a cell returns after its servers were evacuated into another one, their guests are
destroyed. A server with a sealed row is not started: its guest runs elsewhere, or is about to.

A server is doubtful when the numbers of its record and of the region contradict each other: one of the databases went
back. Nothing is said about its guests, so that none is destroyed, started or switched off (RULES §26).

An evacuated server leaves its guest on a host that is taken for dead. Until it is about to be started elsewhere, the
guest is kept there and not started; from then on it is destroyed, whenever that host returns (RULES §11).
"""

from collections.abc import Collection, Mapping

import msgspec

from moorage.bus.host_messages import NOT_TOLD_UP_TO, ServerTurn
from moorage.model.fencing_token import LAST_ATTEMPT, UNDO, FencingToken
from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.server import ApiPowerState, VmState
from moorage.placement.engine import Engine
from moorage.sql import Database, Tx
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import server_queries
from moorage.store.cell.migrations import Leaving
from moorage.store.cell.server_queries import ServerPlace
from moorage.store.doubts import Doubt, doubt_of
from moorage.store.region.server_standing import ServerStanding, standings

RUNNING_STATES = frozenset({VmState.ACTIVE, VmState.BUILDING, VmState.RESCUED})
"""Servers in these states are started again after their host was off. A paused one is not: it would run against its
owner's will.
"""


class Judged(msgspec.Struct, frozen=True):
    """The judgement about a host's servers."""

    turns: tuple[ServerTurn, ...] = ()
    """Tokens for the host's own servers, and for those asked about which something is known."""
    undecided: frozenset[ServerId] = frozenset()
    """Asked about, and an operation is about to decide: ask again."""
    left_alone: frozenset[ServerId] = frozenset()
    """Asked about, and no record knows them: the cell has lost the record, or neither the cell nor the region knows the
    server.
    """
    absent: frozenset[ServerId] = frozenset()
    """Recorded here with a guest, held by no operation, and not among those asked about."""
    doubtful: frozenset[ServerId] = frozenset()
    """One of the stores went back: nothing is said about their guests, wherever they are (RULES §26)."""
    shown: Mapping[ServerId, int] = {}
    """Records that show operations of which the region does not know yet that they are recorded."""
    newest: dict[ServerId, int] = {}
    """The number of the last operation of servers that have had many (`NOT_TOLD_UP_TO`)."""

    @property
    def wrong(self) -> tuple[ServerTurn, ...]:
        return tuple(each for each in self.turns if not each.here)


class Belonging:
    """For the hosts of one cell."""

    def __init__(self, cell: CellId, database: Database, region: Database, engine: Engine) -> None:
        self._cell = cell
        self._database = database
        self._region = region
        self._engine = engine

    async def judge(self, host: str, servers: Collection[ServerId], *, turns_only: bool = False) -> Judged:
        """Judge the servers of a host, and those asked about. `turns_only`: the host has only tokens of those asked
        about, which it would forget, and no guests.

        The region is read before the cell is read again: an operation that begins in between has a later place among
        the server's operations than this judgement, so its guest is not changed by it. About an operation that unwinds
        in between nothing is said.
        """
        before, leaving = await self._database.read(lambda tx: _in_cell(tx, host, servers))
        ids = {*before, *servers}
        known = await self._region.read(lambda tx: standings(tx, ids))
        placed = before
        if any(self._may_be_wrong(host, before.get(each), known.get(each)) for each in ids):
            placed, leaving = await self._database.read(lambda tx: _in_cell(tx, host, ids))
        turns: list[ServerTurn] = []
        undecided: set[ServerId] = set()
        left_alone: set[ServerId] = set()
        doubtful: set[ServerId] = set()
        on_its_way: set[ServerId] = set()
        for each in sorted(ids):
            row, where = placed.get(each), known.get(each)
            if _doubt(row, where, self._cell) is not None and not _is_gone(row, where):
                doubtful.add(each)
                continue
            turn = _turn_in_move(each, host, row, where, leaving)
            if turn is _NOT_MOVED:
                turn = self._turn_for(each, host, row, where, turns_only=turns_only)
            if turn is not None:
                turns.append(turn)
                if not turn.here and not turn.gone and _is_on(row, host):
                    on_its_way.add(each)
            if each in servers and (turn is None or not turn.here):
                if where is not None and where.operation is not None:
                    undecided.add(each)
                elif turn is None:
                    left_alone.add(each)
        absent = {
            each
            for each, row in placed.items()
            if each not in servers
            and each not in doubtful
            and not row.hidden
            and self._counts(row, known.get(each), host)
            and row.power_state != ApiPowerState.NOSTATE
            and ((where := known.get(each)) is None or where.operation is None)
        }
        if turned_back := await self._changed(on_its_way, known):
            turns = [each for each in turns if each.server not in turned_back]
            undecided |= turned_back & set(servers)
        shown = {each: row.seq for each, row in placed.items() if _is_news(row, known.get(each), self._cell)}
        return Judged(
            tuple(turns),
            frozenset(undecided),
            frozenset(left_alone),
            frozenset(absent),
            frozenset(doubtful),
            {each: seq for each, seq in shown.items() if each not in doubtful},
            {each: where.op_seq for each, where in known.items() if where.op_seq > NOT_TOLD_UP_TO},
        )

    async def _changed(self, servers: set[ServerId], known: dict[ServerId, ServerStanding]) -> set[ServerId]:
        """Of servers that are recorded here and judged as wrong, those whose facts in the region have changed since.

        The region was read before the cell: an operation that released its claim elsewhere, and then ended its move, in
        between looks like one that has the claim and no move; and the guest here would be the only one.
        """
        if not servers:
            return set()
        now = await self._region.read(lambda tx: standings(tx, servers))
        return {each for each in servers if now.get(each) != known.get(each)}

    def _may_be_wrong(self, host: str, row: ServerPlace | None, where: ServerStanding | None) -> bool:
        """The first read of the cell may be older than the read of the region."""
        if where is None or where.deleted:
            return False
        if _doubt(row, where, self._cell) is not None:
            return True
        if where.claimed_on is not None:
            return self._name_of(where.claimed_on) != host
        return not self._counts(row, where, host)

    def _counts(self, row: ServerPlace | None, where: ServerStanding | None, host: str) -> bool:
        """Whether a row of this cell shows that the server is on the host: the row may be a hidden one."""
        if not _is_on(row, host):
            return False
        if where is None or where.cell in (self._cell, None):
            return True
        return where.claimed_on is not None and self._name_of(where.claimed_on) == host

    def _turn_for(
        self, server: ServerId, host: str, row: ServerPlace | None, where: ServerStanding | None, *, turns_only: bool
    ) -> ServerTurn | None:
        """None: no fact names it."""
        if _is_gone(row, where):
            return ServerTurn(server, here=False, gone=True)
        counts = self._counts(row, where, host)
        if where is None:
            if counts:
                return _present_turn(row, where)
            return ServerTurn(server, here=False, gone=True) if turns_only and row is None else None
        if where.operation is not None:
            return self._under_way(server, host, row, where)
        if counts:
            return _present_turn(row, where)
        if row is None and where.recorded_in in (self._cell, None) and not where.has_order:
            return None
        return ServerTurn(server, FencingToken(where.op_seq, LAST_ATTEMPT, UNDO), here=False)

    def _under_way(
        self, server: ServerId, host: str, row: ServerPlace | None, where: ServerStanding
    ) -> ServerTurn | None:
        if where.claimed_on is not None:
            name = self._name_of(where.claimed_on)
            if name is None or where.operation_seq is None:
                return None
            if name != host:  # earlier attempts are over, even if messages of theirs are still under way
                return ServerTurn(server, FencingToken(where.operation_seq, where.attempt - 1, UNDO), here=False)
        if self._counts(row, where, host):
            return _present_turn(row, where)
        if where.claimed_on is not None or where.operation_seq is None:
            return None
        return ServerTurn(server, FencingToken(where.operation_seq - 1, LAST_ATTEMPT, UNDO), here=False)

    def _name_of(self, host: HostId) -> str | None:
        world = self._engine.world()
        slot = world.slots.get(host)
        return None if slot is None else world.names[slot]


_NOT_MOVED = ServerTurn(ServerId(""))


def _turn_in_move(
    server: ServerId, host: str, row: ServerPlace | None, where: ServerStanding | None, leaving: Leaving
) -> ServerTurn | None:
    """By the server's open migration away from this host; `_NOT_MOVED`: it says nothing."""
    if server in leaving.stay and not _is_gone(row, where):
        return ServerTurn(server, None, here=True, running=row is None or _runs(row), over=_over(where))
    if server in leaving.stay_off and not _is_gone(row, where):
        return ServerTurn(server, None, here=True, running=False, over=_over(where))
    if server in leaving.evacuated and _is_being_moved(row, where, host):
        return _elsewhere(where)
    return _NOT_MOVED


def _is_being_moved(row: ServerPlace | None, where: ServerStanding | None, host: str) -> bool:
    """Its record says that it is still on this host, and an operation is about to change that."""
    return _is_on(row, host) and not _is_gone(row, where) and where is not None and where.operation_seq is not None


def _elsewhere(where: ServerStanding | None) -> ServerTurn | None:
    """What is older than the operation is over; a guest that the operation itself has switched off stays off until it
    is done.
    """
    if where is None or where.operation_seq is None:
        return None
    return ServerTurn(where.id, FencingToken(where.operation_seq - 1, LAST_ATTEMPT, UNDO), here=False)


def _in_cell(tx: Tx, host: str, servers: Collection[ServerId]) -> tuple[dict[ServerId, ServerPlace], Leaving]:
    return server_queries.where_placed(tx, host, servers), cell_migrations.leaving(tx, host)


def _is_gone(row: ServerPlace | None, where: ServerStanding | None) -> bool:
    return (where is not None and where.deleted) or (row is not None and row.deleted)


def _doubt(row: ServerPlace | None, where: ServerStanding | None, cell: CellId) -> Doubt | None:
    """Which store went back. A row that another cell shows is older by right.

    The row was read after the region: so an operation that has begun since looks like a region that went back, and the
    next comparison decides.
    """
    if row is None or where is None:
        return None
    doubt = doubt_of(row.seq, where, under_way=row.under_way)
    return None if doubt is Doubt.RECORD_OLDER and (row.hidden or where.cell != cell) else doubt


def _is_news(row: ServerPlace, where: ServerStanding | None, cell: CellId) -> bool:
    """Whether the region is to remember which operation the record shows."""
    if where is None or where.operation is not None or where.has_order or where.cell != cell or row.hidden:
        return False
    return where.recorded_seq < row.seq <= where.op_seq and not row.deleted and not row.under_way


def _is_on(row: ServerPlace | None, host: str) -> bool:
    return row is not None and not row.deleted and row.host == host


def _present_turn(row: ServerPlace | None, where: ServerStanding | None) -> ServerTurn:
    assert row is not None
    return ServerTurn(row.id, None, here=True, running=_runs(row), over=_over(where))


def _runs(row: ServerPlace) -> bool:
    """A sealed row has the state of an earlier time: its server may run elsewhere by now."""
    return not row.hidden and row.vm_state in RUNNING_STATES


def _over(where: ServerStanding | None) -> int | None:
    """The last of the server's operations that no longer holds it."""
    if where is None or where.operation is None:
        return None if where is None else where.op_seq
    return None if where.operation_seq is None else where.operation_seq - 1
