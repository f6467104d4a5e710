"""`/servers`: created, shown, listed, changed and deleted, at the versions that changed something about it."""

from typing import Any

import pytest

from moorage.model.errors import Unavailable
from moorage.model.server import Fault, TaskState, VmState
from moorage.store.cell import servers as cell_servers
from moorage.store.servers import server_values
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import IMAGE, NETWORK, a_server, keep

WANTED = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": [{"uuid": NETWORK}]}


async def test_made_and_shown(servers: Any) -> None:
    answer = await servers.make(at="2.1")
    assert answer.status_code == 202, answer.text
    made = answer.json()["server"]
    assert sorted(made) == ["OS-DCF:diskConfig", "adminPass", "id", "links", "security_groups"]
    assert answer.headers["location"] == f"http://cloud/v2.1/servers/{made['id']}"
    assert len(made["adminPass"]) == 12
    shown = (await servers.get(f"/servers/{made['id']}", by=MEMBER)).json()["server"]
    assert (shown["status"], shown["OS-EXT-STS:task_state"], shown["addresses"]) == ("BUILD", "scheduling", {})
    described = [(await servers.make(at=at)).json()["server"]["id"] for at in ("2.18", "2.19")]
    rows = [(await servers.get(f"/servers/{each}", at="2.19", by=MEMBER)).json()["server"] for each in described]
    assert [each["description"] for each in rows] == ["web", None]  # its name, where it could not be said


async def test_several_servers_return_a_reservation_id(servers: Any) -> None:
    answer = await servers.make(at="2.1", min_count="2", max_count=3, return_reservation_id=True)
    assert (answer.status_code, answer.json()) == (202, {"reservation_id": "r-abc"})
    assert "location" not in answer.headers
    assert await servers.names("?reservation_id=r-abc&sort_key=launch_index&sort_dir=asc") == [
        "web-1",
        "web-2",
        "web-3",
    ]
    assert (await servers.make(min_count=3, max_count=2)).status_code == 400


REFUSED_BELOW = [
    ("2.18", "2.19", {"description": "x"}),
    ("2.51", "2.52", {"tags": ["a"]}),
    ("2.62", "2.63", {"trusted_image_certificates": ["c"]}),
    ("2.89", "2.90", {"hostname": "web"}),
    ("2.93", "2.94", {"hostname": "web.example.org"}),
    ("2.36", "2.37", {"networks": "auto"}),
    ("2.31", "2.32", {"networks": [{"uuid": NETWORK, "tag": "a"}]}),
    ("2.41", "2.42", {"networks": [{"uuid": NETWORK, "tag": "a"}]}),
    ("2.57", "2.56", {"personality": []}),
]


@pytest.mark.parametrize(("refused", "taken", "fields"), REFUSED_BELOW)
async def test_fields_of_create_by_version(servers: Any, refused: str, taken: str, fields: Any) -> None:
    assert (await servers.make(at=refused, **fields)).status_code == 400
    answer = await servers.make(at=taken, **fields)
    assert answer.status_code == 202, answer.text


BAD = [
    {"name": ""},
    {"name": " x"},
    {"networks": [{"uuid": "nonsense"}]},
    {"networks": [{}]},
    {"networks": "all"},
    {"networks": [{"port": NETWORK, "fixed_ip": "10.0.0.1"}]},
    {"networks": [{"uuid": NETWORK, "fixed_ip": "10.0.0.999"}]},
    {"user_data": "not base 64!"},
    {"accessIPv4": "fd00::1"},
    {"metadata": {"k": 1}},
    {"metadata": {"": "v"}},
    {"min_count": 0},
    {"hostname": "web", "max_count": 2},
    {"unknown": 1},
    {"block_device_mapping_v2": [{"source_type": "volume", "destination_type": "volume"}]},
    {"tags": ["a,b"]},
    {"config_drive": "maybe"},
]


@pytest.mark.parametrize("fields", BAD)
async def test_invalid_bodies_are_refused_and_begin_nothing(servers: Any, fields: Any) -> None:
    answer = await servers.make(**fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["badRequest"]["code"] == 400
    assert servers.book.booted == []


async def test_networks_are_required_from_2_37(servers: Any) -> None:
    body = {"server": {key: value for key, value in WANTED.items() if key != "networks"}}
    assert (await servers.ask("POST", "/servers", body, at="2.36", by=MEMBER)).status_code == 202
    answer = await servers.ask("POST", "/servers", body, at="2.37", by=MEMBER)
    assert "'networks' is a required property" in answer.json()["badRequest"]["message"]


async def test_only_permitted_users_choose_a_host(servers: Any) -> None:
    assert (await servers.make(host="h1")).status_code == 403
    assert (await servers.make(availability_zone="nova:h1")).status_code == 403
    assert (await servers.make(by=ADMIN, host="h1")).status_code == 202
    assert (await servers.make(by=ADMIN, host="h1", availability_zone="nova:h1")).status_code == 400
    assert (await servers.make(by=READER)).status_code == 403


async def test_a_server_at_every_version_that_changed_it(servers: Any) -> None:
    await servers.keep(a_server())
    latest = await servers.shown(by=ADMIN)
    seen = dict(latest)
    assert latest["flavor"] == {
        "vcpus": 1, "ram": 512, "disk": 1, "ephemeral": 0, "swap": 0, "original_name": "m1.tiny",
        "extra_specs": {"hw:numa_nodes": "1"},
    }  # fmt: skip
    assert latest["host_status"] == "UNKNOWN"
    lost = [
        ("2.99", ["scheduler_hints"]),
        ("2.95", ["pinned_availability_zone"]),
        ("2.72", ["locked_reason"]),
        ("2.70", ["server_groups"]),
        ("2.62", ["trusted_image_certificates"]),
        ("2.25", ["tags"]),
        ("2.18", ["description"]),
        ("2.15", ["host_status"]),
        ("2.8", ["locked"]),
    ]
    for at, names in lost:
        shown = await servers.shown(at, ADMIN)
        for name in names:
            del seen[name]
        assert sorted(shown) == sorted(seen), at
    assert latest["image"]["properties"] == {"hw_disk_bus": "virtio"}
    assert "properties" not in (await servers.shown("2.97"))["image"]
    assert (await servers.shown("2.46"))["flavor"] == {
        "id": "1",
        "links": [{"rel": "bookmark", "href": "http://cloud/flavors/1"}],
    }
    assert sorted(set(await servers.shown("2.3", ADMIN)) - set(await servers.shown("2.2", ADMIN))) == [
        f"OS-EXT-SRV-ATTR:{name}"
        for name in (
            "hostname", "kernel_id", "launch_index", "ramdisk_id", "reservation_id", "root_device_name", "user_data"
        )
    ]  # fmt: skip


async def test_fields_shown_to_a_member(servers: Any) -> None:
    await servers.keep(a_server())
    shown = await servers.shown("2.89")
    assert not [name for name in shown if name.startswith("OS-EXT-SRV-ATTR") or name == "host_status"]
    assert (await servers.shown("2.90"))["OS-EXT-SRV-ATTR:hostname"] == "web1"
    assert shown["addresses"] == {
        "private": [
            {
                "version": 4,
                "addr": "10.0.0.5",
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:4c:2c:30",
            }
        ]
    }
    assert (shown["status"], shown["created"], shown["progress"]) == ("ACTIVE", "2026-01-01T00:00:01Z", 100)
    assert (await servers.get(f"/servers/{a_server().id}", by=STRANGER)).status_code == 404
    assert "server_groups" not in (await servers.get("/servers/detail", at="latest", by=MEMBER)).json()["servers"][0]


async def test_administrators_see_more_of_a_fault(servers: Any) -> None:
    fault = Fault(500, "No valid host was found. ", 1_767_225_600_000_000, "the details")
    await servers.keep(a_server(vm_state=VmState.ERROR, fault=fault), a_server(2, fault=fault))
    assert (await servers.shown())["fault"] == {
        "code": 500,
        "created": "2026-01-01T00:00:00Z",
        "message": fault.message,
    }
    assert (await servers.shown(by=ADMIN))["fault"]["details"] == "the details"
    assert "progress" not in await servers.shown()
    assert "fault" not in await servers.shown(number=2)


async def test_lists_page_through_region_and_cell(servers: Any) -> None:
    await servers.keep(*(a_server(n, cell=None if n % 3 == 0 else "cell1") for n in range(1, 8)))
    expected = [f"web{n}" for n in range(7, 0, -1)]
    assert await servers.names() == expected
    path, walked = "/servers/detail?limit=3", []
    while path:
        page = (await servers.get(path, by=MEMBER)).json()
        walked += [row["name"] for row in page["servers"]]
        links = page.get("servers_links", [])
        path = links[0]["href"] if links else ""
    assert walked == expected
    assert await servers.names("?limit=0") == []
    assert (await servers.get("/servers?marker=nobody", by=MEMBER)).status_code == 400
    assert (await servers.get("/servers?limit=-1", by=MEMBER)).status_code == 400


async def test_filters_are_parsed_as_nova_does(servers: Any) -> None:
    await servers.keep(
        a_server(1, updated_at=1_767_225_610_400_000),
        a_server(2, vm_state=VmState.STOPPED, tags=("red",), locked=True),
        a_server(3, deleted_at=1, vm_state=VmState.DELETED),
        a_server(4, project=STRANGER.project, host="h2"),
    )
    assert await servers.names() == ["web2", "web1"]
    assert await servers.names("?all_tenants=1", by=ADMIN) == ["web4", "web2", "web1"]
    assert await servers.names(f"?all_tenants=1&project_id={STRANGER.project}", by=ADMIN) == ["web4"]
    assert (await servers.get("/servers?all_tenants=1", by=MEMBER)).status_code == 403
    assert await servers.names("?host=h2&all_tenants=1", by=ADMIN) == ["web4"]
    assert await servers.names("?host=h2") == ["web2", "web1"]
    assert await servers.names("?status=shutoff") == ["web2"]
    assert await servers.names("?status=ACTIVE&status=SHUTOFF") == ["web2", "web1"]
    assert await servers.names("?status=nonsense", at="2.37") == []
    assert (await servers.get("/servers?status=nonsense", at="2.38", by=MEMBER)).status_code == 400
    assert await servers.names("?name=b1") == ["web1"]
    assert (await servers.get("/servers?name=[", by=MEMBER)).status_code == 400
    assert await servers.names("?tags=red") == ["web2"]
    assert await servers.names("?tags=red", at="2.25") == ["web2", "web1"]
    assert await servers.names("?locked=true") == ["web2"]
    assert await servers.names("?changes-since=2026-01-01T00:00:00Z") == ["web3", "web2", "web1"]
    shown = (await servers.get(f"/servers/{a_server(1).id}", by=MEMBER)).json()["server"]["updated"]
    assert "web1" in await servers.names(f"?changes-before={shown}"), "it changed within the second that it shows"
    assert await servers.names("?deleted=true&all_tenants=1", by=ADMIN) == ["web3"]
    assert (await servers.get("/servers?deleted=true&status=deleted", by=MEMBER)).status_code == 403
    assert await servers.names("?ip=10.0.0.5") == ["web2", "web1"]
    assert await servers.names("?sort_key=display_name&sort_dir=asc") == ["web1", "web2"]
    assert (await servers.get("/servers?sort_key=host", by=MEMBER)).status_code == 403
    assert (await servers.get("/servers?sort_key=nonsense", by=MEMBER)).status_code == 400
    assert (await servers.get("/servers?nonsense=1", at="2.75", by=MEMBER)).status_code == 400
    assert await servers.names("?nonsense=1", at="2.74") == ["web2", "web1"]


async def test_the_cell_wins_over_the_order(servers: Any) -> None:
    order = a_server(1, vm_state=VmState.BUILDING, task_state=TaskState.SCHEDULING)
    await keep(servers.context.region, None, order)
    assert (await servers.names("?status=BUILD")) == ["web1"]
    await servers.cell.write(lambda tx: tx.run(cell_servers.servers.insert().values(server_values(a_server(1)))))
    assert (await servers.names("?status=BUILD")) == []
    assert await servers.names() == ["web1"]


async def test_an_update_shows_little_below_2_75(servers: Any) -> None:
    await servers.keep(a_server())
    path = f"/servers/{a_server().id}"
    answer = await servers.ask("PUT", path, {"server": {"name": "new"}}, at="2.1", by=MEMBER)
    assert answer.status_code == 200, answer.text
    shown = answer.json()["server"]
    assert shown["name"] == "new"
    assert shown["addresses"] == {"private": [{"version": 4, "addr": "10.0.0.5"}]}
    assert "OS-EXT-STS:vm_state" not in shown
    assert (await servers.shown())["name"] == "new"
    result = (await servers.ask("PUT", path, {"server": {"description": None}}, at="latest", by=MEMBER)).json()[
        "server"
    ]
    assert (result["description"], result["OS-EXT-STS:vm_state"]) == (None, "active")
    assert (await servers.ask("PUT", path, {"server": {"description": "x"}}, at="2.18", by=MEMBER)).status_code == 400
    assert (await servers.ask("PUT", path, {"server": {"name": "x"}}, by=READER)).status_code == 403


async def test_deletes(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, locked=True))
    assert (await servers.ask("DELETE", f"/servers/{a_server().id}", by=MEMBER)).status_code == 204
    assert (await servers.ask("DELETE", f"/servers/{a_server(2).id}", by=MEMBER)).status_code == 409
    assert (await servers.ask("DELETE", f"/servers/{a_server(2).id}", by=ADMIN)).status_code == 204
    assert (await servers.ask("DELETE", "/servers/nobody", by=MEMBER)).status_code == 404
    assert servers.book.deleted == [(a_server().id, False), (a_server(2).id, False)]


class Out:
    """A cell's database that cannot be reached."""

    async def read(self, work: Any) -> Any:
        raise Unavailable("the cell1 database does not answer")

    read_inline = read


async def test_servers_of_an_unreachable_cell(servers: Any) -> None:
    await servers.keep(a_server(1), a_server(2, cell=None, vm_state=VmState.ERROR))
    servers.context.cells = {"cell1": Out()}  # type: ignore[dict-item]
    assert await servers.names(at="2.68") == ["web2"]
    rows = (await servers.get("/servers/detail", at="2.69", by=MEMBER)).json()["servers"]
    assert rows[1] == {
        "id": a_server(1).id,
        "status": "UNKNOWN",
        "tenant_id": MEMBER.project,
        "created": "2026-01-01T00:00:01Z",
        "links": rows[1]["links"],
    }
    path = f"/servers/{a_server(1).id}"
    assert (await servers.get(path, at="2.68", by=MEMBER)).status_code == 503
    assert (await servers.get(path, at="2.69", by=MEMBER)).json()["server"]["status"] == "UNKNOWN"
    assert (await servers.get(path, at="2.69", by=STRANGER)).status_code == 404


async def test_ports_with_a_resource_request_are_allowed_from_2_72(servers: Any) -> None:
    for at in ("2.71", "2.72"):
        assert (await servers.make(at=at)).status_code == 202
    assert [request.qos_ports_allowed for request, _ in servers.book.booted] == [False, True]


VOLUME = "7d2f3f3e-4d6f-4a07-9dd1-3f1e8f7a2f60"


async def attach(servers: Any, at: str) -> Any:
    path = f"/servers/{a_server().id}/os-volume_attachments"
    return await servers.ask("POST", path, {"volumeAttachment": {"volumeId": VOLUME}}, at=at, by=MEMBER)


async def test_a_shelved_servers_volumes_from_2_20(servers: Any) -> None:
    await servers.keep(a_server(vm_state=VmState.SHELVED_OFFLOADED))
    assert [(await attach(servers, at)).status_code for at in ("2.19", "2.20")] == [409, 200]


async def test_multiattach_from_2_60(servers: Any) -> None:
    await servers.keep(a_server())
    for at in ("2.59", "2.60"):
        assert (await attach(servers, at)).status_code == 200
    assert [wish.multiattach_allowed for _, wish in servers.book.volumes] == [False, True]


async def test_an_attach_is_answered_without_a_body_from_2_101(servers: Any) -> None:
    await servers.keep(a_server())
    older, newer = [await attach(servers, at) for at in ("2.100", "2.101")]
    body = {"id": VOLUME, "volumeId": VOLUME, "serverId": a_server().id, "device": "/dev/vdb"}
    assert older.json() == {"volumeAttachment": {**body, "tag": None, "delete_on_termination": False}}
    assert (older.status_code, newer.status_code, newer.content) == (200, 202, b"")
    assert (await attach(servers, "2.69")).json() == {"volumeAttachment": body}


async def test_a_list_of_a_thousand_servers_costs_one_statement_for_each_database(servers: Any) -> None:
    await servers.keep(*(a_server(n) for n in range(1, 1001)))
    meter = servers.cell.meter
    meter.reset()
    first = await servers.get("/servers/detail", at="latest", by=MEMBER)
    assert len(first.json()["servers"]) == 1000
    assert sum(meter.statements.values()) <= 2
    assert (await servers.get("/servers/detail", at="latest", by=MEMBER)).content == first.content
    await servers.ask("PUT", f"/servers/{a_server(7).id}", {"server": {"name": "new"}}, by=MEMBER)
    changed = (await servers.get("/servers/detail", at="latest", by=MEMBER)).json()["servers"]
    assert [row["name"] for row in changed if row["id"] == a_server(7).id] == ["new"]


async def test_a_server_is_pinned_to_its_own_zone_only(servers: Any) -> None:
    """2.104, in Nova's order: another zone than the one it is pinned to, then another than the one it is in."""
    await servers.keep(a_server(1), a_server(2, pinned_az=None))

    async def pinned(number: int, zone: str | None) -> tuple[int, Any]:
        body = {"server": {"pinned_availability_zone": zone}}
        answer = await servers.ask("PUT", f"/servers/{a_server(number).id}", body, at="latest")
        result = answer.json()
        return answer.status_code, (
            result["server"]["pinned_availability_zone"]
            if answer.status_code == 200
            else result.get("conflictingRequest", result).get("message", result)
        )

    direct = "Cannot change pinned availability zone directly. Unpin first by setting pinned_availability_zone to null."
    assert await pinned(1, "west") == (409, direct)
    assert await pinned(1, "nova") == (200, "nova")
    other = "Server can only be pinned to its current availability zone 'nova', but 'west' was requested."
    assert await pinned(2, "west") == (409, other)
    assert await pinned(2, "nova") == (200, "nova")
    assert await pinned(2, None) == (200, None)
    assert await pinned(2, None) == (200, None)
