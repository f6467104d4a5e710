"""Flavors, at the versions where something about them changed."""

from typing import Any

import pytest

from moorage_testing.compute_app import ADMIN, MEMBER, STRANGER, ApiClient

SMALL = {"name": "small", "id": "1", "ram": 512, "vcpus": "1", "disk": 1}


async def make(cloud: ApiClient, at: str = "latest", **fields: Any) -> Any:
    answer = await cloud.ask("POST", "/flavors", {"flavor": {**SMALL, **fields}}, at=at)
    assert answer.status_code == 200, answer.text
    return answer.json()["flavor"]


async def test_a_flavor_at_every_version_that_changed_it(cloud: ApiClient) -> None:
    await make(cloud, description="little")
    today = {
        "id": "1", "name": "small", "ram": 512, "vcpus": 1, "disk": 1, "swap": 0, "OS-FLV-EXT-DATA:ephemeral": 0,
        "os-flavor-access:is_public": True, "description": "little", "extra_specs": {},
        "links": [
            {"rel": "self", "href": "http://cloud/v2.1/flavors/1"},
            {"rel": "bookmark", "href": "http://cloud/flavors/1"},
        ],
    }  # fmt: skip
    assert (await cloud.get("/flavors/1", at="2.102")).json()["flavor"] == today
    before = {**today, "rxtx_factor": 1.0, "OS-FLV-DISABLED:disabled": False}
    assert (await cloud.get("/flavors/1", at="2.101")).json()["flavor"] == before
    before["swap"] = ""
    assert (await cloud.get("/flavors/1", at="2.74")).json()["flavor"] == before
    del before["extra_specs"]
    assert (await cloud.get("/flavors/1", at="2.60")).json()["flavor"] == before
    assert (await cloud.get("/flavors/detail", at="2.60")).json()["flavors"] == [before]
    del before["description"]
    assert (await cloud.get("/flavors/1", at="2.54")).json()["flavor"] == before
    assert (await cloud.get("/flavors", at="2.54")).json() == {
        "flavors": [{"id": "1", "name": "small", "links": before["links"]}]
    }


async def test_links_repeat_the_project_of_the_url(cloud: ApiClient) -> None:
    await make(cloud)
    links = (await cloud.get(f"/{ADMIN.project}/flavors/1")).json()["flavor"]["links"]
    assert links[0]["href"] == f"http://cloud/v2.1/{ADMIN.project}/flavors/1"
    assert links[1]["href"] == f"http://cloud/{ADMIN.project}/flavors/1"


async def test_fields_of_one_version_are_refused_by_others(cloud: ApiClient) -> None:
    for at, field, value in (("2.54", "description", "x"), ("2.102", "rxtx_factor", 2.0)):
        answer = await cloud.ask("POST", "/flavors", {"flavor": {**SMALL, field: value}}, at=at)
        assert answer.status_code == 400
        assert f"('{field}' was unexpected)" in answer.json()["badRequest"]["message"]
    assert (await make(cloud, at="2.101", rxtx_factor="2.5"))["rxtx_factor"] == 2.5
    assert (await cloud.ask("PUT", "/flavors/1", {"flavor": {"description": "x"}}, at="2.54")).status_code == 404
    changed = await cloud.ask("PUT", "/flavors/1", {"flavor": {"description": "x"}}, at="2.55")
    assert changed.json()["flavor"]["description"] == "x"


@pytest.mark.parametrize(
    "fields",
    [
        {"ram": 0}, {"vcpus": -1}, {"disk": "x"}, {"name": ""}, {"name": " x"}, {"id": " 1"}, {"id": "a/b"}, {"id": ""},
        {"os-flavor-access:is_public": "maybe"}, {"vcpus": 2**31}, {"swap": True}, {"wings": 2},
    ],
)  # fmt: skip
async def test_impossible_flavors(cloud: ApiClient, fields: dict[str, Any]) -> None:
    answer = await cloud.ask("POST", "/flavors", {"flavor": {**SMALL, **fields}}, at="latest")
    assert answer.status_code == 400, answer.text


async def test_names_and_ids_are_unique(cloud: ApiClient) -> None:
    await make(cloud)
    twice = await cloud.ask("POST", "/flavors", {"flavor": SMALL})
    assert twice.json()["conflictingRequest"]["message"] == "Flavor with name small already exists."
    twice = await cloud.ask("POST", "/flavors", {"flavor": {**SMALL, "name": "other"}})
    assert twice.json()["conflictingRequest"]["message"] == "Flavor with ID 1 already exists."
    minted = await make(cloud, name="free", id=None)
    assert len(minted["id"]) == 36
    assert (await make(cloud, name="seven", id=7))["id"] == "7"


async def test_lists_filter_sort_and_page(cloud: ApiClient) -> None:
    for number in range(1, 6):
        await make(cloud, name=f"f{number}", id=str(number), ram=number * 100, disk=6 - number)

    async def ids(query: str, at: str = "latest") -> list[str]:
        answer = await cloud.get(f"/flavors?{query}", at=at)
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["flavors"]]

    assert await ids("minRam=300") == ["3", "4", "5"]
    assert await ids("minDisk=4") == ["1", "2"]
    assert await ids("sort_key=memory_mb&sort_dir=desc") == ["5", "4", "3", "2", "1"]
    assert await ids("limit=2&marker=2") == ["3", "4"]
    assert await ids("name=f3") == ["3"]
    assert len(await ids("name=f3", at="2.74")) == 5
    first = (await cloud.get("/flavors/detail?limit=2&minRam=200", at="2.61")).json()
    assert first["flavors_links"] == [
        {"rel": "next", "href": "http://cloud/v2.1/flavors/detail?limit=2&minRam=200&marker=3"}
    ]
    for bad in ("minRam=x", "marker=nobody", "sort_key=colour", "limit=-1", "wings=2"):
        assert (await cloud.get(f"/flavors?{bad}", at="2.75")).status_code == 400, bad
    assert (await cloud.get("/flavors?wings=2", at="2.74")).status_code == 200


async def test_private_flavors(cloud: ApiClient) -> None:
    await make(cloud, **{"os-flavor-access:is_public": "no"})
    assert (await cloud.get("/flavors/1", by=MEMBER)).status_code == 404
    add = {"addTenantAccess": {"tenant": MEMBER.project}}
    opened = await cloud.ask("POST", "/flavors/1/action", add)
    assert opened.json() == {"flavor_access": [{"flavor_id": "1", "tenant_id": MEMBER.project}]}
    assert (await cloud.ask("POST", "/flavors/1/action", add)).status_code == 409
    assert (await cloud.get("/flavors/1", by=MEMBER)).status_code == 200
    assert (await cloud.get("/flavors/1", by=STRANGER)).status_code == 404
    assert (await cloud.get("/flavors")).json()["flavors"] == []
    assert [each["id"] for each in (await cloud.get("/flavors?is_public=None")).json()["flavors"]] == ["1"]
    assert [each["id"] for each in (await cloud.get("/flavors", by=MEMBER)).json()["flavors"]] == ["1"]
    assert (await cloud.get("/flavors/1/os-flavor-access")).json() == opened.json()
    remove = {"removeTenantAccess": {"tenant": MEMBER.project}}
    assert (await cloud.ask("POST", "/flavors/1/action", remove)).json() == {"flavor_access": []}
    assert (await cloud.ask("POST", "/flavors/1/action", remove)).status_code == 404


async def test_public_flavors_accept_no_project_access_from_2_7(cloud: ApiClient) -> None:
    await make(cloud)
    add = {"addTenantAccess": {"tenant": MEMBER.project}}
    assert (await cloud.ask("POST", "/flavors/1/action", add, at="2.7")).status_code == 409
    assert (await cloud.ask("POST", "/flavors/1/action", add, at="2.6")).status_code == 200
    assert (await cloud.get("/flavors/1/os-flavor-access")).status_code == 404


async def test_only_administrators_make_flavors(cloud: ApiClient) -> None:
    assert (await cloud.ask("POST", "/flavors", {"flavor": SMALL}, by=MEMBER)).status_code == 403
    await make(cloud)
    assert (await cloud.ask("DELETE", "/flavors/1", by=MEMBER)).status_code == 403
    assert (await cloud.ask("DELETE", "/flavors/1")).status_code == 202
    assert (await cloud.ask("DELETE", "/flavors/1")).status_code == 404


async def test_extra_specs(cloud: ApiClient) -> None:
    await make(cloud)
    specs = {"extra_specs": {"hw:cpu_policy": "shared", "own": 7}}
    made = await cloud.ask("POST", "/flavors/1/os-extra_specs", specs)
    assert made.json() == specs
    assert (await cloud.get("/flavors/1/os-extra_specs")).json()["extra_specs"] == {
        "hw:cpu_policy": "shared",
        "own": "7",
    }
    assert (await cloud.get("/flavors/1/os-extra_specs/own", by=MEMBER)).json() == {"own": "7"}
    changed = await cloud.ask("PUT", "/flavors/1/os-extra_specs/own", {"own": "8"})
    assert changed.json() == {"own": "8"}
    assert (await cloud.ask("PUT", "/flavors/1/os-extra_specs/own", {"other": "8"})).status_code == 400
    assert (await cloud.ask("DELETE", "/flavors/1/os-extra_specs/own")).status_code == 200
    assert (await cloud.ask("DELETE", "/flavors/1/os-extra_specs/own")).status_code == 404
    assert (await cloud.get("/flavors/1/os-extra_specs/own")).status_code == 404
    assert (await cloud.ask("POST", "/flavors/1/os-extra_specs", specs, by=MEMBER)).status_code == 403


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("hw:cpu_policy", "dedicated", True), ("hw:cpu_policy", "mine", False), ("hw:nonsense", "1", False),
        ("hw:numa_nodes", "0", False), ("hw:numa_mem.0", "512", True), ("resources:VCPU", "2", True),
        ("resources1:CUSTOM_GOLD", "2", True), ("resources:GOLD", "2", False), ("trait:HW_CPU_X86_AVX", "required", True),
        ("trait:HW_CPU_X86_AVX", "perhaps", False), ("mine:own", "x", True), ("anything", "x", True),
        ("quota:disk_read_bytes_sec", "100", True), ("hw_rng:allowed", "perhaps", False),
    ],
)  # fmt: skip
async def test_known_extra_specs_are_validated_from_2_86(cloud: ApiClient, name: str, value: str, fine: bool) -> None:
    await make(cloud)
    body = {"extra_specs": {name: value}}
    assert (await cloud.ask("POST", "/flavors/1/os-extra_specs", body, at="2.85")).status_code == 200
    answer = await cloud.ask("POST", "/flavors/1/os-extra_specs", body, at="2.86")
    assert answer.status_code == (200 if fine else 400), answer.text
