"""Malformed requests are refused in Placement's format, never with a 500, and nothing of them is stored."""

import json
from functools import partial

import httpx
from tests.helpers.malformed_requests import AT, JSON, PROVIDER, malformed

from moorage.api.placement.app import make_placement_app
from moorage.api.placement.noauth import believe
from moorage.model.resources import CAPACITY_MAX, Inventory
from moorage.placement.engine import Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database
from moorage.store.region.placement import placement_metadata
from moorage.store.region.placement.claim_statements import drift


async def test_the_malformed_is_refused(database: Database) -> None:
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    app = make_placement_app(engine, database, believe, prefix="/placement")
    known = {"x-auth-token": "admin", "x-roles": "admin,service", "openstack-api-version": "placement 1.39"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://p/placement", headers=known
    ) as http:
        made = await http.post("/resource_providers", json={"name": "a", "uuid": PROVIDER})
        stock = {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 0}
        stocked = await http.put(f"{AT}/inventories", json=stock)
        assert (made.status_code, stocked.status_code) == (200, 200)
        statuses = set()
        for one in malformed():
            reply = await http.request(one.method, one.path, content=one.body, headers=one.headers)
            statuses.add(reply.status_code)
            assert reply.status_code < 500, f"{one.said}: {reply.text}"
            if reply.status_code >= 400:
                assert json.loads(reply.content)["errors"][0]["status"] == reply.status_code, one.said
        assert {400, 404, 405, 406, 409, 415} <= statuses
        assert (await http.get("/resource_providers/")).status_code == 404
        assert (await http.request("TRACE", "/resource_providers")).json()["errors"][0]["status"] == 405
        assert (
            await http.get("/resource_providers", headers={"openstack-api-version": "placement 1.5 x"})
        ).status_code == 400
        odd = {"inventories": {"a": 1}, "resource_provider_generation": 1}
        assert (await http.put(f"{AT}/inventories", json=odd)).status_code == 400
        ratio = {"inventories": {"VCPU": {"total": 8, "allocation_ratio": 3e38}}, "resource_provider_generation": 1}
        assert (await http.put(f"{AT}/inventories", json=ratio)).status_code == 200
        found = (await http.get("/allocation_candidates?resources=VCPU:1")).json()["provider_summaries"]
        assert found[PROVIDER]["resources"]["VCPU"]["capacity"] == CAPACITY_MAX
        held = (await http.get(f"{AT}/allocations")).json()["allocations"]
        names = [one["name"] for one in (await http.get("/resource_providers")).json()["resource_providers"]]
        assert (held, set(names) - {"a\0b"}) == ({}, {"a"})  # SQLite keeps NUL, PostgreSQL refuses it
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://p", headers=known) as http:
        assert (await http.get("/placement")).json()["versions"][0]["id"] == "v1.0"
        beside = await http.get("/placements")
        assert (beside.status_code, beside.json()["errors"][0]["status"]) == (404, 404)
    assert await database.read(drift) == []
    await engine.close()


async def test_errors_in_the_kind_that_is_accepted(database: Database) -> None:
    """A kind that is not JSON is told in its own form."""
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    http = httpx.AsyncClient(
        transport=httpx.ASGITransport(make_placement_app(engine, database, believe)), base_url="http://p"
    )
    async with http:
        for accept, kind in (
            ("text/html", "text/html"),
            ("application/xml", "text/plain"),
            ("*/*", "application/json"),
        ):
            reply = await http.get("/nothing", headers={"accept": accept, "x-auth-token": "admin"} | JSON)
            assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (404, kind)
    await engine.close()


def test_a_capacity_fits_into_the_database() -> None:
    assert Inventory(total=10, ratio=1e38).capacity == CAPACITY_MAX
    assert Inventory(total=10, reserved=3, ratio=1.5).capacity == 10
