"""A model of the Placement API in plain dicts, as a Hypothesis state machine.

The model is written from the API's description, and uses nothing of the engine. After every step, what one provider and one consumer show is compared. Candidates come from `placement_oracle`.
"""

import itertools
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)
from typing_extensions import override

from moorage.store.region.placement.claim_statements import drift
from tests.helpers.placement_oracle import (
    AGGREGATES,
    CLASSES,
    PROVIDERS_MAX,
    SHARES,
    Asked,
    Oracle,
    Thing,
    capacity,
    requests,
)
from tests.helpers.placement_strategies import (
    aggregate_sets,
    allocated_amounts,
    inventories_by_class,
    one_in_five,
    provider_lists,
    provider_numbers,
    trait_sets,
)
from tests.helpers.placement_under_test import Holder, PlacementUnderTest

CONSUMERS = tuple(str(uuid.UUID(int=number)) for number in range(10, 14))
QUERIES_A_STEP = 12
_numbers = itertools.count(1)


class Model(PlacementUnderTest):
    """Each rule sends a request and predicts its status."""

    @override
    def teardown(self) -> None:
        if sys.exc_info()[0] is None:  # after a failed step, a failure here would hide the first one
            self._shown_in_all()
            assert self.run(self.database.read(drift)) == []
        super().teardown()

    # ------------------------------------------------------------------------------------------------ providers

    @initialize(world=provider_lists, shape=st.sampled_from(["any", "sharing", "family"]))
    def begin(self, world: list[tuple[int | None, dict[str, Any], frozenset[str], frozenset[str]]], shape: str) -> None:
        """A world to ask about from the first step on, of a shape that chance alone would seldom give."""
        shared = frozenset(AGGREGATES[:1])
        if shape == "sharing":  # a disk beside one that has none
            _, _, traits, aggregates = world[0]
            world[0] = None, {"VCPU": {"total": 4}}, traits, aggregates | shared
            world[1] = None, {"DISK_GB": {"total": 4}}, frozenset([SHARES]), shared
        elif shape == "family":  # what the children have the parent has not, but the aggregate
            child = 0, {"VCPU": {"total": 4}}, frozenset[str](), frozenset[str]()
            world[:1] = [(None, {"DISK_GB": {"total": 4}}, frozenset(), shared), child, child]
        for parent, wanted, traits, aggregates in world:
            self._make(parent, wanted)
            self.mark(len(self.things) - 1, traits, late=False)
            self.gather(len(self.things) - 1, aggregates)

    @precondition(lambda self: len(self.things) < PROVIDERS_MAX)
    @rule(parent=st.none() | provider_numbers, wanted=inventories_by_class)
    def create(self, parent: int | None, wanted: dict[str, dict[str, Any]]) -> None:
        self._make(parent, wanted)

    def _make(self, parent: int | None, wanted: dict[str, dict[str, Any]]) -> None:
        above = None if parent is None or not self.things else self.at(parent)
        new = str(uuid.uuid4())
        body = {"name": f"p{next(_numbers)}", "uuid": new, "parent_provider_uuid": above.uuid if above else None}
        assert self.ask("POST", "/resource_providers", body).status_code == 200
        self.things[new] = Thing(new, above.uuid if above else None, above.root if above else new)
        self._stock(self.things[new], wanted, late=False)

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers)
    def remove(self, index: int) -> None:
        thing = self.at(index)
        held = any(key[0] == thing.uuid for holder in self.holders.values() for key in holder.amounts)
        kept = held or any(other.parent == thing.uuid for other in self.things.values())
        reply = self.ask("DELETE", f"/resource_providers/{thing.uuid}")
        assert reply.status_code == (409 if kept else 204), reply.text
        if not kept:
            del self.things[thing.uuid]

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers, to=st.none() | provider_numbers)
    def move(self, index: int, to: int | None) -> None:
        """With all that is below it, but not below itself."""
        thing, above = self.at(index), None if to is None else self.at(to)
        below = {thing.uuid}
        for _ in self.things:
            below |= {other.uuid for other in self.things.values() if other.parent in below}
        body = {"name": f"p{next(_numbers)}", "parent_provider_uuid": above.uuid if above else None}
        loop = above is not None and above.uuid in below
        reply = self.ask("PUT", f"/resource_providers/{thing.uuid}", body)
        assert reply.status_code == (400 if loop else 200), reply.text
        if loop:
            return
        thing.parent = above.uuid if above else None
        for one in below:
            self.things[one].root = above.root if above else thing.uuid
        found = self.ask("GET", "/resource_providers", query=[("in_tree", thing.uuid)]).json()["resource_providers"]
        assert {each["uuid"] for each in found} == {
            other.uuid for other in self.things.values() if other.root == thing.root
        }

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers, wanted=inventories_by_class, late=one_in_five)
    def restock(self, index: int, wanted: dict[str, dict[str, Any]], late: bool) -> None:
        self._stock(self.at(index), wanted, late=late)

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers, name=st.sampled_from(CLASSES))
    def drop(self, index: int, name: str) -> None:
        """One inventory goes, if nothing of it is used."""
        thing = self.at(index)
        reply = self.ask("DELETE", f"/resource_providers/{thing.uuid}/inventories/{name}")
        used = self.used(thing.uuid, name) > 0
        assert reply.status_code == (404 if name not in thing.inventories else 409 if used else 204), reply.text
        if reply.status_code == 204:
            thing.inventories = {left: one for left, one in thing.inventories.items() if left != name}
            thing.generation += 1

    def _stock(self, thing: Thing, wanted: dict[str, dict[str, Any]], *, late: bool) -> None:
        body = {"inventories": wanted, "resource_provider_generation": thing.generation + late}
        reply = self.ask("PUT", f"/resource_providers/{thing.uuid}/inventories", body)
        in_use = any(self.used(thing.uuid, name) for name in thing.inventories.keys() - wanted.keys())
        bad = any(one["total"] < one.get("reserved", 0) for one in wanted.values())
        expected = 409 if late else 400 if bad else 409 if in_use else 200
        assert reply.status_code == expected, reply.text
        if expected == 200:
            thing.inventories, thing.generation = wanted, thing.generation + 1

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers, traits=trait_sets, late=one_in_five)
    def mark(self, index: int, traits: frozenset[str], late: bool) -> None:
        thing = self.at(index)
        body = {"traits": sorted(traits), "resource_provider_generation": thing.generation - late}
        reply = self.ask("PUT", f"/resource_providers/{thing.uuid}/traits", body)
        assert reply.status_code == (409 if late else 200), reply.text
        if not late:
            thing.generation += traits != thing.traits
            thing.traits = traits

    @precondition(lambda self: self.things)
    @rule(index=provider_numbers, aggregates=aggregate_sets)
    def gather(self, index: int, aggregates: frozenset[str]) -> None:
        thing = self.at(index)
        body = {"aggregates": sorted(aggregates), "resource_provider_generation": thing.generation}
        assert self.ask("PUT", f"/resource_providers/{thing.uuid}/aggregates", body).status_code == 200
        thing.generation += 1
        thing.aggregates = aggregates

    # ---------------------------------------------------------------------------------------------- allocations

    def _body(self, consumer: str, amounts: dict[str, dict[str, int]], late: bool) -> dict[str, Any]:
        holder = self.holders.get(consumer)
        generation = None if holder is None else holder.generation
        return {
            "allocations": {provider: {"resources": resources} for provider, resources in amounts.items()},
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
            "consumer_generation": (generation or 0) + 7 if late else generation,
        }

    def _named(self, amounts: dict[int, dict[str, int]]) -> dict[str, dict[str, int]]:
        return {self.at(index).uuid: resources for index, resources in amounts.items()} if self.things else {}

    def _allowed(self, wanted: dict[str, dict[str, dict[str, int]]]) -> bool:
        before = {(u, n): self.used(u, n) for u, thing in self.things.items() for n in thing.inventories}
        after = dict(before)
        for consumer, amounts in wanted.items():
            for key, amount in (self.holders[consumer].amounts if consumer in self.holders else {}).items():
                after[key] -= amount
            for provider, resources in amounts.items():
                for name, amount in resources.items():
                    inventory = self.things[provider].inventories.get(name)
                    if inventory is None or amount % inventory.get("step_size", 1):
                        return False
                    if not inventory.get("min_unit", 1) <= amount <= inventory.get("max_unit", amount):
                        return False
                    after[provider, name] += amount
        return all(n <= before[u, c] or n <= capacity(self.things[u].inventories[c]) for (u, c), n in after.items())

    def _settle(self, wanted: dict[str, dict[str, dict[str, int]]]) -> None:
        bumped: set[str] = set()
        for consumer, amounts in wanted.items():
            old = self.holders.pop(consumer, None)
            bumped |= set(amounts) if amounts else {provider for provider, _ in (old.amounts if old else {})}
            if amounts:
                flat = {(provider, name): n for provider, one in amounts.items() for name, n in one.items()}
                self.holders[consumer] = Holder((old.generation if old else 0) + 1, flat)
        for provider in bumped:
            self.things[provider].generation += 1

    @precondition(lambda self: self.things)
    @rule(consumer=st.sampled_from(CONSUMERS), amounts=allocated_amounts, late=one_in_five)
    def claim(self, consumer: str, amounts: dict[int, dict[str, int]], late: bool) -> None:
        named = self._named(amounts)
        reply = self.ask("PUT", f"/allocations/{consumer}", self._body(consumer, named, late))
        fine = not late and self._allowed({consumer: named})
        assert reply.status_code == (204 if fine else 409), reply.text
        if fine:
            self._settle({consumer: named})

    @precondition(lambda self: self.things)
    @rule(
        consumer=st.sampled_from(CONSUMERS),
        index=provider_numbers,
        name=st.sampled_from(CLASSES),
        beyond=st.sampled_from([-1, 0, 1]),
    )
    def claim_the_rest(self, consumer: str, index: int, name: str, beyond: int) -> None:
        """All that is left of one inventory, or one less, or one too many."""
        thing = self.at(index)
        if name not in thing.inventories:
            return
        own = self.holders[consumer].amounts.get((thing.uuid, name), 0) if consumer in self.holders else 0
        amount = capacity(thing.inventories[name]) - self.used(thing.uuid, name) + own + beyond
        if amount > 0:
            self.claim(consumer, {index: {name: amount}}, late=False)

    @precondition(lambda self: self.things)
    @rule(drawn=st.lists(st.tuples(st.sampled_from(CONSUMERS), allocated_amounts), min_size=4, max_size=4))
    def claims(self, drawn: list[tuple[str, dict[int, Any]]]) -> None:
        for consumer, amounts in drawn:
            self.claim(consumer, amounts, late=False)

    @precondition(lambda self: self.things)
    @rule(
        consumers=st.lists(st.sampled_from(CONSUMERS), min_size=2, max_size=2, unique=True),
        one=allocated_amounts,
        two=allocated_amounts,
    )
    def claim_together(self, consumers: list[str], one: dict[int, Any], two: dict[int, Any]) -> None:
        wanted = {consumers[0]: self._named(one), consumers[1]: self._named(two)}
        body = {consumer: self._body(consumer, amounts, False) for consumer, amounts in wanted.items()}
        reply = self.ask("POST", "/allocations", body)
        fine = self._allowed(wanted)
        assert reply.status_code == (204 if fine else 409), reply.text
        if fine:
            self._settle(wanted)

    @precondition(lambda self: self.holders)
    @rule(consumer=st.sampled_from(CONSUMERS))
    def release(self, consumer: str) -> None:
        known = consumer in self.holders
        assert self.ask("DELETE", f"/allocations/{consumer}").status_code == (204 if known else 404)
        self.holders.pop(consumer, None)

    @precondition(lambda self: len(self.things) > 1)
    @rule(source=provider_numbers, other=provider_numbers, name=st.sampled_from(CLASSES))
    def reshape(self, source: int, other: int, name: str) -> None:
        """Move one class, with what is used of it, from one provider to another that has none of it."""
        old, new = self.at(source), self.at(other)
        if old is new or name not in old.inventories or name in new.inventories:
            return
        moved = {
            consumer: {key: n for key, n in holder.amounts.items() if key == (old.uuid, name)}
            for consumer, holder in self.holders.items()
            if (old.uuid, name) in holder.amounts
        }
        wanted: dict[str, dict[str, dict[str, int]]] = {}
        for consumer in moved:
            after: dict[str, dict[str, int]] = {}
            for (provider, resource), n in self.holders[consumer].amounts.items():
                place = new.uuid if (provider, resource) == (old.uuid, name) else provider
                after.setdefault(place, {})[resource] = n
            wanted[consumer] = after
        left = {resource: one for resource, one in old.inventories.items() if resource != name}
        got = new.inventories | {name: old.inventories[name]}
        body = {
            "inventories": {
                thing.uuid: {"inventories": one, "resource_provider_generation": thing.generation}
                for thing, one in ((old, left), (new, got))
            },
            "allocations": {consumer: self._body(consumer, one, False) for consumer, one in wanted.items()},
        }
        reply = self.ask("POST", "/reshaper", body)
        new.inventories, before = got, new.inventories
        moves_well = self._allowed(wanted)
        assert reply.status_code == (204 if moves_well else 409), reply.text
        if not moves_well:
            new.inventories = before
            return
        self._settle(wanted)
        old.inventories = left
        for thing in (old, new):  # generations of reshaped providers move by a number of writes that is not told here
            thing.generation = self.ask("GET", f"/resource_providers/{thing.uuid}").json()["generation"]

    # -------------------------------------------------------------------------------------------------- queries

    @precondition(lambda self: self.things)
    @rule(drawn=st.lists(requests, min_size=QUERIES_A_STEP, max_size=QUERIES_A_STEP))
    def candidates(self, drawn: list[Asked]) -> None:
        things = list(self.things.values())
        oracle = Oracle(things, self.used)
        for asked in drawn:
            query, expected = asked.said(things), oracle.answers(asked)
            assert self._found(query) == expected, (query, things)
            if len(expected) > 2:  # of fewer, every limit is as good as none
                few = self._found([*query, ("limit", "2")])
                assert few <= expected, query
                assert len(few) == 2, query

    @precondition(lambda self: self.things)
    @rule(drawn=st.lists(requests, min_size=QUERIES_A_STEP, max_size=QUERIES_A_STEP))
    def candidates_again(self, drawn: list[Asked]) -> None:
        """As often as two rules."""
        self.candidates(drawn)

    def _found(self, query: Sequence[tuple[str, str]]) -> set[Any]:
        reply = self.ask("GET", "/allocation_candidates", query=query)
        assert reply.status_code == 200, reply.text
        found = [
            (
                frozenset(((u, n), a) for u, one in each["allocations"].items() for n, a in one["resources"].items()),
                frozenset((suffix, frozenset(uuids)) for suffix, uuids in each["mappings"].items()),
            )
            for each in reply.json()["allocation_requests"]
        ]
        assert len(set(found)) == len(found), found
        return set(found)

    @invariant()
    def shown_as_it_is(self) -> None:
        """One provider and one consumer after every step, in turn."""
        self.steps += 1
        if self.things:
            thing = self.at(self.steps)
            usages = self.ask("GET", f"/resource_providers/{thing.uuid}/usages").json()
            assert usages["resource_provider_generation"] == thing.generation
            assert usages["usages"] == {name: self.used(thing.uuid, name) for name in thing.inventories}
        consumer = CONSUMERS[self.steps % len(CONSUMERS)]
        shown = self.ask("GET", f"/allocations/{consumer}").json()
        holder = self.holders.get(consumer)
        flat = {(u, n): a for u, one in shown["allocations"].items() for n, a in one["resources"].items()}
        assert flat == ({} if holder is None else holder.amounts)
        assert shown.get("consumer_generation") == (None if holder is None else holder.generation)

    def _shown_in_all(self) -> None:
        """Trees, traits, aggregates and inventories of every provider, and what the project uses."""
        listed = self.ask("GET", "/resource_providers").json()["resource_providers"]
        shown = {each["uuid"]: (each["parent_provider_uuid"], each["root_provider_uuid"]) for each in listed}
        assert shown == {thing.uuid: (thing.parent, thing.root) for thing in self.things.values()}
        for thing in self.things.values():
            path = f"/resource_providers/{thing.uuid}"
            assert set(self.ask("GET", f"{path}/traits").json()["traits"]) == thing.traits
            assert set(self.ask("GET", f"{path}/aggregates").json()["aggregates"]) == thing.aggregates
            have = self.ask("GET", f"{path}/inventories").json()["inventories"]
            assert have.keys() == thing.inventories.keys()
            assert all(have[name].items() >= one.items() for name, one in thing.inventories.items())
        total: dict[str, int] = {}
        for holder in self.holders.values():
            for (_, name), amount in holder.amounts.items():
                total[name] = total.get(name, 0) + amount
        usages = self.ask("GET", "/usages", query=[("project_id", "p")]).json()["usages"]
        assert usages == ({"INSTANCE": {**total, "consumer_count": len(self.holders)}} if self.holders else {})
