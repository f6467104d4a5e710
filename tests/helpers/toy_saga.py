"""A small invented saga on dictionaries, with every kind of step that a boot has.

`Flaws` plants the mistakes that people make; the harness must find each of them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from moorage.model.errors import Conflict, NoCapacity
from moorage.saga import Fenced, Run, Saga, on_some_host, step

T = TypeVar("T")
HOSTS = ("amber", "birch", "cedar", "delta")


class Refused(Exception):
    def __init__(self, value: object) -> None:
        super().__init__("refused")
        self.value = value


@dataclass
class Region:
    """Tables whose transactions are all or nothing."""

    tables: dict[str, Any] = field(default_factory=lambda: {"free": dict.fromkeys(HOSTS, 1), "claims": {}})

    def refuse(self, value: object) -> NoReturn:
        raise Refused(value)


class Toy:
    """The world: a region, and four services that can be late, asked twice, and asked by the dead."""

    def __init__(self) -> None:
        self.region = Region()
        self.ports: dict[str, str | None] = {}
        self.disks: set[tuple[str, str]] = set()
        self.rows: dict[str, str] = {}
        self.guests: dict[str, str] = {}
        self.turn = (0, 0)
        self.letters: list[str] = []
        self.epoch = 0

    @property
    def context(self) -> "Toy":
        return self

    def held(self) -> Any:
        claims = self.region.tables["claims"]
        free = sum(self.region.tables["free"].values())
        where = sorted({*claims.values(), *(host for host in self.ports.values() if host), *self.guests.values()})
        return {
            "claims": len(claims),
            "free": free,
            "ports": sorted(self.ports),
            "disks": len(self.disks),
            "rows": sorted(self.rows),
            "guests": len(self.guests),
            "one host": len(where) <= 1,
            "letters": list(self.letters),
        }

    async def transact(self, work: Callable[[Any], T]) -> T:
        before = copy.deepcopy(self.region.tables)
        try:
            return work(self.region)
        except Refused as refused:
            self.region.tables = before
            return refused.value  # type: ignore[return-value]
        except BaseException:
            self.region.tables = before
            raise

    def fence(self, run: Run[Any, Any]) -> None:
        if run.epoch < self.epoch:
            raise Fenced
        self.epoch = run.epoch

    def obey(self, run: Run[Any, Any]) -> None:
        turn = (run.attempt, int(run.phase == "undo"))
        if turn < self.turn:
            raise Conflict("a later turn was heard")
        self.turn = turn


class Asked(Struct, frozen=True):
    server: str
    nics: int = 2


ToyRun = Run[Asked, Toy]


@step
async def make_ports(run: ToyRun) -> tuple[str, ...]:
    run.context.fence(run)
    names = tuple(f"{run.input.server}-{nic}" for nic in range(run.input.nics))
    run.context.ports |= {name: run.context.ports.get(name) for name in names}
    return names


@make_ports.undo
async def delete_ports(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.ports.clear()


@step(region=True, needs=(make_ports,))
async def claim_host(run: ToyRun) -> str:
    server = run.input.server

    def claim(host: str) -> Callable[[Region], str | None]:
        def work(tx: Region) -> str | None:
            free, claims = tx.tables["free"], tx.tables["claims"]
            if (old := claims.pop(server, None)) is not None:
                free[old] += 1
            free[host] -= 1
            if free[host] < 0 or host == "amber":
                tx.refuse(None)
            claims[server] = host
            return host

        return work

    for host in HOSTS:
        if host not in run.tried and (got := await run.commit(claim(host))):
            return got
    raise NoCapacity("no host can take this server")


@claim_host.undo
async def release_host(run: ToyRun) -> None:
    def work(tx: Region) -> None:
        if (old := tx.tables["claims"].pop(run.input.server, None)) is not None:
            tx.tables["free"][old] += 1

    await run.commit(work)


@step(moves=True, needs=(claim_host,))
async def bind_ports(run: ToyRun) -> int:
    run.context.fence(run)
    for name in run[make_ports]:
        run.context.ports[name] = run[claim_host]
    return len(run[make_ports])


@bind_ports.undo
async def unbind_ports(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.ports = dict.fromkeys(run.context.ports)


@step(host_local=True, needs=(claim_host,))
async def attach_disk(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.disks.add((run.input.server, run[claim_host]))


@attach_disk.undo
async def detach_disk(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.disks.discard((run.input.server, run[claim_host]))


@step(needs=(claim_host,))
async def record_server(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.rows[run.input.server] = run[claim_host]


@record_server.undo
async def remove_server(run: ToyRun) -> None:
    run.context.fence(run)
    run.context.rows.pop(run.input.server, None)


@step(host_local=True, needs=(bind_ports, attach_disk))
async def start_guest(run: ToyRun) -> None:
    run.context.obey(run)
    run.context.guests[run.input.server] = run[claim_host]


@start_guest.undo
async def destroy_guest(run: ToyRun) -> None:
    run.context.obey(run)
    run.context.guests.pop(run.input.server, None)


@step(point_of_no_return=True, no_undo="people have seen it")
async def announce(run: ToyRun) -> str:
    run.context.fence(run)
    run.context.rows[run.input.server] += ""  # there must be a row
    return run[claim_host]


@step(no_undo="a letter cannot be unsent, and it is sent after the point of no return")
async def send_letter(run: ToyRun) -> str:
    run.context.fence(run)
    if not run.unsure or not run.context.letters:
        run.context.letters = [run.input.server]
    return run[announce]


TOY = Saga(
    "toy/1",
    Asked,
    make_ports,
    on_some_host(claim_host, bind_ports, attach_disk, record_server, start_guest),
    announce,
    send_letter,
)
ASKED = Asked("s1")
