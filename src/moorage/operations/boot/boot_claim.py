"""The claim of a boot: compute and addresses on the best host that has room, in one transaction."""

import msgspec

from moorage.model.decision_log import Subject
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
from moorage.store.region import inbox, waiting
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.claim_statements import Owner

LOST_KEPT_MAX = 20
CLAIM_ROUNDS_MAX = 50
"""How often the hosts are ranked; each round but the first follows a lost claim."""


class HostClaim:
    """One attempt of a boot to claim a host; when another claim was faster, it tries the next host (N1)."""

    def __init__(self, run: BootRun, made: Made) -> None:
        self._run = run
        self._ports = made.ports
        self._networks = networks_of(run.input, made)

    def plain_ask(self) -> Ask:
        """What is asked, whatever earlier attempts found exhausted; not on hosts that failed."""
        return ask_of(self._run.input, self._networks, self._ports, not_on=self._blamed)

    @property
    def _blamed(self) -> tuple[HostId, ...]:
        return tuple(HostId(host) for host in self._run.blamed)

    def only_blamed_have_room(self, ask: Ask) -> bool:
        """Whether hosts that failed this boot would have room, and no others; what the last attempt still holds there is room, too."""
        engine = self._run.context.placement
        if not ask.not_on or engine.rank(ask).best:
            return False
        last = ProviderId(self._run.tried[-1])
        own = [(last, resource, amount) for resource, amount in ask.resources.items()]
        engine.picture.pend(own, -1)
        try:
            return bool(engine.rank(msgspec.structs.replace(ask, not_on=())).best)
        finally:
            engine.picture.pend(own, +1)

    async def take_best(self) -> Claim:
        """Claim the best host that no other request claimed first.

        Raises NoCapacity when no host is left, Unavailable while the database of a cell that may have room does not
        answer.
        """
        engine = self._run.context.placement
        ports, exhausted = (
            self._ports,
            frozenset(each for cause in self._run.causes_since_sleep for each in cause.without),
        )
        ask = without_exhausted(self.plain_ask(), ports, exhausted)
        ask = msgspec.structs.replace(ask, cells_out=cells_out(self._run))
        subject = Subject(self._run.input.server.id, self._run.operation, self._run.attempt, "boot")
        verdict, fresh = engine.decide(ask, subject), False
        lost: list[str] = []
        for _ in range(CLAIM_ROUNDS_MAX):
            for choice in verdict.best:
                claim = self._claim_of(choice, ask, verdict.ledger, tuple(lost))
                with engine.holding(choice, ask):
                    answer = await self._take(choice, ask, claim)
                if isinstance(answer, Claim):
                    return answer
                lost.append(answer.why())
                if answer.stale:  # the other choices of this verdict may be stale too
                    break
            if fresh and not verdict.best:
                if ask.cells_out and engine.rank(msgspec.structs.replace(ask, cells_out=())).best:
                    if still_out := self._run.context.cells.out():
                        raise Unavailable(WAITING).naming(f"waiting for the database of cell {', '.join(still_out)}")
                    ask = msgspec.structs.replace(ask, cells_out=())  # they were out when an earlier attempt ended
                    verdict, fresh = engine.decide(ask, subject), False
                    continue
                raise NoCapacity(verdict.fault(), private=msgspec.json.encode(verdict.ledger).decode())
            verdict, fresh = await engine.decide_fresh(ask, subject), True
        raise NoCapacity(
            "No valid host was found. Every claim was taken by another request first.",
            private=msgspec.json.encode(verdict.ledger).decode(),
        )

    def _claim_of(self, choice: Choice, ask: Ask, ledger: DecisionRecord, lost: tuple[str, ...]) -> Claim:
        """The claim on this host, as the world shows the host now."""
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
        """In one transaction: the claim, and the server's cell. A shortage writes nothing."""
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
            if boot.wait is not None:
                waiting.claimed(tx, self._run.operation)
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
        """For each NIC with a claimed segment, that segment's IPv4 subnet, unless the NIC has a chosen address."""
        subnets: dict[int, str] = {}
        for port, segment in zip(self._ports, segments, strict=False):
            network = self._networks.get(port.network)
            if segment is None or network is None or port.address_chosen or port.ip_allocation == "none":
                continue
            subnet = next((s.id for s in network.subnets if s.segment == segment and s.version == 4), None)
            if subnet is not None:
                subnets[port.index] = subnet
        return subnets


def _was_changed(boot: Boot, order: Server | None) -> bool:
    """Whether the owner changed the server since the boot was accepted; fences and the host do not count."""
    kept = {
        name: getattr(boot.server, name) for name in ("generation", "operation", "op_epoch", "op_line", "updated_at")
    }
    return order is not None and msgspec.structs.replace(order, **kept) != boot.server
