"""A small fleet that changes in every way that the provider cache supports, and requests of every kind, reproducible by a seed."""

import random
from collections.abc import Callable

from moorage.model.ids import HostId, ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.resources import DISABLED_TRAIT
from moorage.model.verdict import InventoryState
from moorage.model.world import Ask, Choice, Group, GroupAsk, GroupPolicy, NicRequirement
from moorage.placement.claims import portions
from moorage.store.region.placement.change_feed import ProviderChanges
from tests.helpers.world_builder import Cloud

BANDWIDTH = "NET_BW_EGR_KILOBIT_PER_SEC"
SEGMENTS = ("s1", "s2", "s3")
POLICIES: tuple[GroupPolicy, ...] = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")


class ChangingFleet:
    """`change` does one thing to it, `ask` makes an ask, `take` claims a choice."""

    def __init__(self, seed: int, hosts: int = 9) -> None:
        self.random = random.Random(seed)
        self._versions = 10
        self._names = 0
        cloud = Cloud()
        for segment in SEGMENTS:
            cloud.segment(segment, self.random.randrange(3, 40), 40)
        for _ in range(hosts):
            self._add_host(cloud)
        self.picture = cloud.picture()
        self._changes: list[Callable[[], None]] = [
            self._flip_alive, self._flip_alive, self._fail, self._level, self._resize, self._resize, self._aggregate,
            self._come, self._go, self._disable, self._reload, self._use, self._use,
        ]  # fmt: skip

    @property
    def hosts(self) -> list[str]:
        return sorted(self.picture.slots_by_name)

    def change(self) -> None:
        """Something happens."""
        self.random.choice(self._changes)()

    def ask(self) -> Ask:
        """Anything that may be asked."""
        draw, one = self.random, self.random.choice
        nics = [
            NicRequirement(
                "n",
                tuple(ProviderId(each) for each in draw.sample(SEGMENTS, draw.randrange(4))),
                draw.randrange(3),
                one([(), (), ("p1",), ("p1", "p2")]),
            )
            for _ in range(draw.randrange(3))
        ]
        group = GroupAsk(one("gh"), one(POLICIES), own=one([0, 0, 1])) if draw.random() < 0.4 else None
        groups = one(
            [(), (), (RequestGroup("a", {BANDWIDTH: 1}),), tuple(RequestGroup(each, {BANDWIDTH: 2}) for each in "ab")]
        )
        return Ask(
            resources={"VCPU": draw.randrange(1, 4), "MEMORY_MB": draw.randrange(1, 700)},
            required=one([(), (), ("CUSTOM_A",), ("CUSTOM_UNKNOWN",)]),
            forbidden=one([(), (), ("CUSTOM_B",)]),
            nics=tuple(nics),
            availability_zone=one([None, None, None, "nova", "west", "nowhere"]),
            not_on=tuple(HostId(each) for each in draw.sample(self.hosts, min(len(self.hosts), one([0, 0, 2])))),
            group=group,
            groups=groups,
            group_policy=one(["none", "isolate"]),
            project=one("pq"),
            extra_specs=one([{}, {}, {"aggregate_instance_extra_specs:ssd": "true"}]),
            min_level=one([0, 3]),
            seed=draw.getrandbits(32),
        )

    def take(self, ask: Ask, choice: Choice) -> None:
        """As a claim of this process: held, and then used."""
        for provider, resource, amount in portions(choice, ask):
            self._settle(provider, resource, amount)
        if ask.group is not None:
            group = self.picture.groups.setdefault(ask.group.id, Group())
            group.hosts[choice.host] = group.hosts.get(choice.host, 0) + 1
            group.home = group.home or choice.host

    def hold(self, ask: Ask, choice: Choice, sign: int) -> None:
        """A claim that is under way, or no longer."""
        self.picture.pend(portions(choice, ask), sign)

    # --------------------------------------------------------------------------------------------- what happens

    def _version(self) -> int:
        self._versions += 1
        return self._versions

    def _add_host(self, cloud: Cloud) -> str:
        draw, name = self.random, f"h{self._names:02}"
        self._names += 1
        traits = tuple(each for each in ("CUSTOM_A", "CUSTOM_B", f"CUSTOM_{name}") if draw.random() < 0.4)
        wired = tuple(each for each in SEGMENTS if draw.random() < 0.7)
        cloud.host(
            name, draw.randrange(2, 30), draw.randrange(500, 9000), traits=traits, wired=wired,
            zone=draw.choice(["nova", "west"]), physnets=draw.choice([None, "p1", "p1,p2"]), level=draw.choice([1, 3]),
            cell=draw.choice(["c", "d"]),
        )  # fmt: skip
        for number in range(draw.randrange(3)):
            traits = ("CUSTOM_A",) if draw.random() < 0.5 else ()
            cloud.device(name, f"{name}:{number}", {BANDWIDTH: draw.randrange(1, 9)}, traits=traits)
        return name

    def _settle(self, provider: str, resource: str, more: int) -> None:
        rows = self.picture.rows
        stock = rows.stock(rows.index[ProviderId(provider)], resource)
        assert stock is not None
        kind, used = stock
        now = max(0, used + more)
        self.picture.settle([InventoryState(ProviderId(provider), resource, more, now, kind.cap, self._version())])

    def _flip_alive(self) -> None:
        if self.hosts:
            self.picture.set_alive(self.random.choice(self.hosts), self.random.random() < 0.7)

    def _fail(self) -> None:
        if self.hosts:
            self.picture.count_failure(HostId(self.random.choice(self.hosts)), failed=self.random.random() < 0.5)

    def _level(self) -> None:
        if self.hosts:
            self.picture.set_level(self.random.choice(self.hosts), self.random.randrange(1, 5))

    def _use(self) -> None:
        """Another process claimed something, or gave it back."""
        if self.hosts:
            self._settle(self.random.choice(self.hosts), "MEMORY_MB", self.random.randrange(-500, 500))

    def _resize(self) -> None:
        """An inventory has another capacity."""
        if not self.hosts:
            return
        host = ProviderId(self.random.choice(self.hosts))
        cap = self.random.randrange(500, 9000)
        self.picture.settle([InventoryState(host, "MEMORY_MB", 0, 0, cap, self._version())])

    def _aggregate(self) -> None:
        some = self.random.sample(self.hosts, len(self.hosts) // 2)
        metadata = self.random.choice([{"ssd": "true"}, {"filter_tenant_id": "q"}, {"availability_zone": "west"}])
        self.picture.set_host_aggregates([("a", metadata, some)])

    def _come(self) -> None:
        cloud = Cloud()
        self._add_host(cloud)
        self.picture.apply(ProviderChanges(self._version(), **cloud.rows))  # type: ignore[arg-type]

    def _go(self) -> None:
        if len(self.hosts) > 4:
            gone = self.random.choice(self.hosts)
            below = [each for each in self.picture.rows.ids if each.startswith(f"{gone}:")]
            self.picture.apply(ProviderChanges(self._version(), gone=[*below, gone]))

    def _disable(self) -> None:
        """An administrator's word comes with the whole row of a provider."""
        cloud = Cloud()
        name = self._add_host(cloud)
        for row in cloud.rows["traits"][:1]:
            row.trait = DISABLED_TRAIT
        self.picture.apply(ProviderChanges(self._version(), **cloud.rows))  # type: ignore[arg-type]
        assert name in self.hosts

    def _reload(self) -> None:
        """Read whole, into a picture of its own, as now and then."""
        fresh = self.picture.successor()
        cloud = Cloud()
        for segment in SEGMENTS:
            cloud.segment(segment, self.random.randrange(3, 40), 40)
        for _ in range(self.random.randrange(5, 12)):
            self._add_host(cloud)
        fresh.apply(ProviderChanges(self._version(), everything=True, **cloud.rows))  # type: ignore[arg-type]
        fresh.take_over(self.picture)
        self.picture = fresh
