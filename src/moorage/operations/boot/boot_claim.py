"""The claim of a boot: compute and addresses on the best willing host, in one transaction."""

import msgspec

from moorage.model.errors import NoCapacity, Unavailable
from moorage.model.ids import HostId, ProviderId
from moorage.model.server import Server
from moorage.model.verdict import Claimed, DecisionRecord, Shortage
from moorage.model.world import Ask, Choice
from moorage.operations.boot.boot_input import Boot, BootRun, Claim, Made, ask_of, networks_of
from moorage.operations.steps import groups
from moorage.operations.steps.claims import first, granted
from moorage.operations.steps.ports import VIF_PLUGGED
from moorage.operations.steps.record_cells import WAITING, cells_out
from moorage.operations.steps.segments import without_exhausted
from moorage.sql import Tx, label
from moorage.store.region import inbox
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.claim_statements import Owner

LOST_KEPT_MAX = 20
CLAIM_ROUNDS_MAX = 50
"""Ranked anew this often at most; each round but the first follows a lost claim."""


class HostClaim:
    """One attempt of a boot to get a host; whoever loses a claim takes the next host (N1)."""

    def __init__(self, run: BootRun, made: Made) -> None:
        self._run = run
        self._ports = made.ports
        self._networks = networks_of(run.input, made)

    async def take_best(self) -> Claim:
        """The claim on the best host that nobody else took first.  Raises NoCapacity when no host is left."""
        engine = self._run.context.placement
        ports, exhausted = self._ports, frozenset(each for cause in self._run.causes for each in cause.without)
        not_on = tuple(HostId(host) for host in self._run.blamed)
        ask = ask_of(self._run.input, self._networks, ports, not_on=not_on)
        ask = without_exhausted(ask, ports, exhausted)
        ask = msgspec.structs.replace(ask, cells_out=cells_out(self._run))
        verdict, fresh = engine.rank(ask), False
        lost: list[str] = []
        for _ in range(CLAIM_ROUNDS_MAX):
            for choice in verdict.best:
                claim = self._claim_of(choice, ask, verdict.ledger, tuple(lost))
                with engine.holding(choice, ask):
                    answer = await self._take(choice, ask, claim)
                if isinstance(answer, Claim):
                    return answer
                lost.append(answer.why())
                if answer.stale:  # so may be the others of this verdict
                    break
            if fresh and not verdict.best:
                if ask.cells_out and engine.rank(msgspec.structs.replace(ask, cells_out=())).best:
                    if still_out := self._run.context.cells.out():
                        raise Unavailable(WAITING).naming(f"waiting for the database of cell {', '.join(still_out)}")
                    ask = msgspec.structs.replace(ask, cells_out=())  # they were out when an earlier attempt ended
                    verdict, fresh = engine.rank(ask), False
                    continue
                raise NoCapacity(verdict.fault(), private=msgspec.json.encode(verdict.ledger).decode())
            verdict, fresh = await engine.rank_fresh(ask), True
        raise NoCapacity(
            "No valid host was found. Every claim was taken by another request first.",
            private=msgspec.json.encode(verdict.ledger).decode(),
        )

    def _claim_of(self, choice: Choice, ask: Ask, ledger: DecisionRecord, lost: tuple[str, ...]) -> Claim:
        """What a claim on this host would be, as the picture knows the host now."""
        world = self._run.context.placement.world()
        slot = world.slots[choice.host]
        return Claim(
            host=choice.host,
            name=choice.name,
            node=world.nodes[slot],
            cell=choice.cell,
            availability_zone=world.zone_names[int(world.zone[slot])],
            level=int(world.level[slot]),
            subnets=self._subnets(choice.segments),
            ledger=ledger,
            lost=lost[-LOST_KEPT_MAX:],
            profiles=groups.profiles(self._ports, choice) if ask.groups else {},
            given=groups.given(ask.groups, choice, world),
        )

    async def _take(self, choice: Choice, ask: Ask, claim: Claim) -> Claim | Shortage:
        """One transaction: the claim, and in which cell the server is to be; a shortage writes nothing."""
        boot, engine = self._run.input, self._run.context.placement
        server = boot.server
        owner = Owner(server.id, server.project, server.user, operation=self._run.operation, attempt=self._run.attempt)

        def work(tx: Tx) -> tuple[Claim, Claimed]:
            answer = engine.claim(
                tx,
                owner,
                choice,
                ask,
                replace=self._run.attempt > 1 or self._run.unsure,
            )
            if isinstance(answer, Shortage):
                tx.refuse(answer)
            if self._run.attempt > 1:
                inbox.drop(tx, boot.server.id, VIF_PLUGGED)
            order = region_servers.place(tx, boot.server.id, self._run.operation, choice.cell)
            profiles = groups.with_functions(claim.profiles, self._ports, answer.functions)
            changed = order if _was_changed(boot, order) else None
            return msgspec.structs.replace(claim, profiles=profiles, order=changed), answer

        with label("claim_host"):
            answer = await self._run.commit(work, result=first)
        return granted(engine, answer)

    def _subnets(self, segments: tuple[ProviderId | None, ...]) -> dict[int, str]:
        """For each NIC with a claimed segment, that segment's IPv4 subnet, unless its address was chosen before."""
        found: dict[int, str] = {}
        for port, segment in zip(self._ports, segments, strict=False):
            network = self._networks.get(port.network)
            if segment is None or network is None or port.address_chosen or port.ip_allocation == "none":
                continue
            subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
            if subnet is not None:
                found[port.index] = subnet
        return found


def _was_changed(boot: Boot, order: Server | None) -> bool:
    """Whether the owner changed what is shown of the server since it was asked; fences and the place do not count."""
    kept = {
        name: getattr(boot.server, name) for name in ("generation", "operation", "op_epoch", "op_line", "updated_at")
    }
    return order is not None and msgspec.structs.replace(order, **kept) != boot.server
