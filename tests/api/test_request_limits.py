"""Requests that exceed the limits of one request are refused with a message, at no cost."""

import dataclasses
from typing import Any

import pytest

from moorage.api import rendered_rows
from moorage.api.compute import server_view
from moorage.api.compute.server_filters import SORT_FIELDS, SORT_KEYS_MAX
from moorage.api.compute.server_hints import hints_of
from moorage.api.compute.server_view import full
from moorage.api.rendered_rows import RenderedRowCache
from moorage.model.errors import Invalid
from moorage_embedded.network import listing as network_listing
from moorage_embedded.network.attributes import Attr
from moorage_embedded.network.faults import NeutronFault as NetworkFault
from moorage_embedded.volume import listing as volume_listing
from moorage_embedded.volume.faults import HttpFault as VolumeFault
from moorage_testing.compute_app import ADMIN, MEMBER, token
from moorage_testing.fake_server_service import a_server

KEYS = sorted(set(SORT_FIELDS) - {"locked"})


async def test_a_repeated_sort_key_counts_once(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, name in enumerate(("b", "c", "a"), start=1):
        await servers.keep(a_server(n, name=name))
    twice = "sort_key=display_name&sort_dir=asc&sort_key=uuid&sort_dir=desc" + "&sort_key=display_name" * 300
    assert await servers.names(f"?{twice}") == ["a", "b", "c"]
    assert await servers.names(f"?{twice}&marker={a_server(3).id}") == ["b", "c"]


async def test_more_than_eight_sort_keys_are_refused(servers: Any) -> None:
    eight = "&".join(f"sort_key={key}" for key in KEYS[:SORT_KEYS_MAX])
    assert (await servers.get(f"/servers?{eight}", by=ADMIN)).status_code == 200
    answer = await servers.get(f"/servers?{eight}&sort_key={KEYS[SORT_KEYS_MAX]}", by=ADMIN)
    assert (answer.status_code, "at most 8 keys, and 9 are given" in answer.text) == (400, True)


def test_sort_keys_of_the_embedded_network_and_volume_services() -> None:
    attrs = {f"a{n}": Attr() for n in range(9)}
    pairs = [("sort_key", "a1"), ("sort_key", "a2")] * 100 + [("sort_key", f"a{n}") for n in range(8)]
    assert len(network_listing.parse(pairs, attrs).sort) == 8
    with pytest.raises(NetworkFault, match="at most 8 sort keys"):
        network_listing.parse([*pairs, ("sort_key", "a8")], attrs)
    sorts = volume_listing.VOLUMES.sorts
    asked = ",".join((*("name:asc", "id:desc") * 100, *sorts[:8]))
    assert len(volume_listing.sort_of(volume_listing.VOLUMES, {"sort": asked})) <= 8
    with pytest.raises(VolumeFault, match="At most 8 sort keys"):
        volume_listing.sort_of(volume_listing.VOLUMES, {"sort": ",".join(sorts[:9])})


@pytest.mark.parametrize("name", ["tags", "tags-any", "not-tags", "not-tags-any"])
async def test_a_filter_of_too_many_tags(servers: Any, name: str) -> None:
    tags = [f"t{n}" for n in range(101)]
    assert (await servers.get(f"/servers?{name}={','.join(tags[:100] * 2)}", at="2.26")).status_code == 200
    answer = await servers.get(f"/servers?{name}={','.join(tags)}", at="2.26")
    assert (answer.status_code, "names 101 tags; at most 100" in answer.text) == (400, True)


UUID = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize(
    ("hints", "said"),
    [
        ({"different_host": [UUID] * 101}, "names 101 servers; at most 100"),
        ({"same_host": [UUID] * 101}, "names 101 servers; at most 100"),
        ({"x": "A" * 9_000}, "at most 8192 are taken"),
        ({"group": "x"}, "'x' is not a 'uuid'"),
        ({"group": []}, "is not a 'uuid'"),
        ({"different_host": "x"}, "'x' is not a 'uuid'"),
        ({"different_host": [UUID, 7]}, "'7' is not a 'uuid'"),
        ({"same_host": [{}]}, "is not a 'uuid'"),
        ({"same_host": 5}, "is not a 'uuid'"),
        ({"query": [1]}, "is not of type 'string', 'object'"),
        ({"target_cell": ""}, "is not a name"),
        ({"different_cell": [1]}, "is not of type 'string', 'array'"),
        ({"build_near_host_ip": "here"}, "is not an IP address"),
        ({"cidr": "24"}, "does not match"),
    ],
)
def test_hints_that_are_refused(hints: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        hints_of(hints)


def test_accepted_scheduler_hints() -> None:
    asked = {
        "same_host": "any", "different_host": [UUID], "group": [UUID, UUID], "query": {"a": [1]}, "cidr": "/24",
        "build_near_host_ip": "192.0.2.1", "other": [1, "two"], "target_cell": "one", "different_cell": "two",
    }  # fmt: skip
    assert hints_of(asked) == {
        **{name: value for name, value in asked.items() if name not in {"group", "query", "other"}},
        "group": UUID, "query": '{"a":[1]}', "other": ["1", "two"],
    }  # fmt: skip
    assert hints_of(None) == {}


async def test_the_host_header_is_used_in_links_and_not_stored(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await servers.keep(a_server(1), a_server(2))
    made = 0

    def counted(*args: Any) -> Any:
        nonlocal made
        made += 1
        return full(*args)

    monkeypatch.setattr(server_view, "full", counted)
    monkeypatch.setattr(servers.context, "config", dataclasses.replace(servers.context.config, public_url=""))
    asked = {"X-Auth-Token": token(MEMBER), "OpenStack-API-Version": "compute 2.79"}
    for n in range(20):
        answer = await servers.http.get("/v2.1/servers/detail", headers={**asked, "Host": f"h{n}.example.org:8774"})
        for server in answer.json()["servers"]:
            assert server["links"][0]["href"] == f"http://h{n}.example.org:8774/v2.1/servers/{server['id']}"
            assert "here-" not in answer.text
    assert made == 2
    answer = await servers.http.get("/v2.1/servers/detail", headers={**asked, "Host": "evil/path"})
    assert (answer.status_code, "Host header" in answer.text) == (400, True)


async def test_cached_rows_are_limited_in_bytes(servers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    full_pages: list[RenderedRowCache] = []
    add = RenderedRowCache.add

    def counted(self: RenderedRowCache, made: Any) -> None:
        full_pages.append(self)
        add(self, made)
        assert self.size_bytes <= rendered_rows.BYTES_MAX
        sizes = [len(row) for row in self._known.values()]
        assert self.size_bytes == sum(sizes) + rendered_rows.KEY_BYTES * len(self)

    monkeypatch.setattr(RenderedRowCache, "add", counted)
    monkeypatch.setattr(rendered_rows, "BYTES_MAX", 8_000)
    await servers.keep(*(a_server(n, description="x" * 200) for n in range(1, 9)))
    for version in ("2.1", "2.50", "2.79"):
        for limit in (1, 2, 8):
            page = await servers.get(f"/servers/detail?limit={limit}", at=version, by=MEMBER)
            assert len(page.json()["servers"]) == limit
    assert full_pages
