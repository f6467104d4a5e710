"""The embedded network service at the Placement API: concurrent changes, lost answers, and shortages."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from moorage.clients.http import ServiceClient
from moorage.main import guarantees
from moorage.main.guarantees import GuaranteesOverHttp
from moorage.model.errors import Unavailable
from moorage.placement.service.error_codes import CONCURRENT_UPDATE, UNDEFINED
from moorage_embedded.network.guarantees import GuaranteeChange, GuaranteedAmount

CHANGES = [
    GuaranteeChange("s1", "p1", (GuaranteedAmount("bridge", "BW", 10, 25),)),
    GuaranteeChange("s2", "p2", (GuaranteedAmount("agent", "PPS", 5, 0),)),
]
AFTER = {"s1": {"host": {"VCPU": 1}, "bridge": {"BW": 35}}, "s2": {"host": {"VCPU": 1}}}


class Placement:
    """Two consumers with their generations; `before` may meddle with a POST, or answer it."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, dict[str, int]]] = {
            "s1": {"host": {"VCPU": 1}, "bridge": {"BW": 20}},
            "s2": {"host": {"VCPU": 1}, "agent": {"PPS": 5}},
        }
        self.generations = {"s1": 1, "s2": 7}
        self.posts = 0
        self.before: Callable[[int], httpx.Response | None] = lambda post: None
        self.after: Callable[[int], None] = lambda post: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["OpenStack-API-Version"] == "placement 1.36"
        if request.method == "GET":
            name = request.url.path.rpartition("/")[2]
            rows = {provider: {"resources": each, "generation": 3} for provider, each in self.held[name].items()}
            more = {"project_id": "p", "user_id": "u", "consumer_generation": self.generations[name]} if rows else {}
            return httpx.Response(200, json={"allocations": rows, **more})
        self.posts += 1
        if (answer := self.before(self.posts)) is not None:
            return answer
        body: dict[str, Any] = json.loads(request.content)
        if any(each["consumer_generation"] != self.generations[name] for name, each in body.items()):
            return refused(CONCURRENT_UPDATE)
        for name, each in body.items():
            assert (each["project_id"], each["user_id"]) == ("p", "u")
            self.held[name] = {provider: row["resources"] for provider, row in each["allocations"].items()}
            self.generations[name] += 1
        self.after(self.posts)
        return httpx.Response(204)

    @property
    def door(self) -> GuaranteesOverHttp:
        return GuaranteesOverHttp(ServiceClient("placement", "http://placement", transport=httpx.MockTransport(self)))


def refused(code: str, status: int = 409) -> httpx.Response:
    return httpx.Response(status, json={"errors": [{"status": status, "code": code, "detail": "no"}]})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarantees, "PAUSE_S", 0.0)


async def test_allocations_of_the_servers_are_kept() -> None:
    placement = Placement()
    assert await placement.door(CHANGES, False)
    assert placement.held == AFTER
    assert await placement.door([each.taken_back() for each in CHANGES], True)
    assert placement.held["s1"]["bridge"] == {"BW": 20}
    assert placement.held["s2"]["agent"] == {"PPS": 5}


async def test_a_concurrent_change_is_read_again() -> None:
    placement = Placement()

    def rival(post: int) -> None:
        if post == 1:
            placement.held["s1"]["bridge"] = {"BW": 120}
            placement.generations["s1"] += 1

    placement.before = rival
    assert await placement.door(CHANGES, False)
    assert placement.held["s1"]["bridge"] == {"BW": 135}
    assert placement.posts == 2


async def test_conflicts_are_reported_and_shortages_refused() -> None:
    placement = Placement()
    placement.before = lambda post: refused(CONCURRENT_UPDATE)
    with pytest.raises(Unavailable, match="keeps changing"):
        await placement.door(CHANGES, False)
    assert placement.posts == guarantees.TRIES_MAX
    placement.before = lambda post: refused(UNDEFINED)
    assert not await placement.door(CHANGES, False)
    placement.before = lambda post: refused(UNDEFINED, 413)
    with pytest.raises(Unavailable, match="placement refused"):
        await placement.door(CHANGES, False)
    assert not await placement.door(CHANGES, True), "what must be is only said"


async def test_a_lost_answer_is_looked_up_and_not_counted_twice() -> None:
    placement = Placement()

    def lost(post: int) -> None:
        if post == 1:
            raise httpx.ReadError("gone")

    placement.after = lost
    assert await placement.door(CHANGES, False)
    assert (placement.held, placement.posts) == (AFTER, 1)

    placement = Placement()
    placement.before = lost  # this one was not done
    assert await placement.door(CHANGES, False)
    assert (placement.held, placement.posts) == (AFTER, 2)

    placement = Placement()

    def lost_and_changed(post: int) -> None:
        placement.held["s1"]["bridge"]["BW"] += 1
        placement.generations["s1"] += 1
        lost(post)

    placement.after = lost_and_changed
    with pytest.raises(Unavailable, match="it is unknown whether"):
        await placement.door(CHANGES, False)


async def test_a_server_without_allocations_gets_none() -> None:
    placement = Placement()
    placement.held["s2"] = {}
    assert not await placement.door(CHANGES, False)
    assert placement.posts == 0
