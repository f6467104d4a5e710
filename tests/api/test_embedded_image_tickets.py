"""What hosts may do at the embedded image service: with a ticket for one image, and with the account of an earlier release."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.model.image_ticket import HEADER, LIFE_S, SKEW_S, ImageTicket, TicketSecret
from moorage.model.principal import Principal
from moorage_embedded.image.policy import IMAGE_DATA
from moorage_testing.image_app import ASKERS, PATCH, SMALL, STREAM, ImageApp, fill, image_service, made


@dataclass
class Clock:
    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def cloud(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ImageApp]:
    monkeypatch.setitem(ASKERS, "host", Principal(user="moorage-images", project="service", roles=(IMAGE_DATA,)))
    with_tickets = replace(SMALL, tickets=TicketSecret("s", clock))
    async with image_service(tmp_path, settings=with_tickets) as opened:
        yield opened


def shows(cloud: ImageApp, clock: Clock, image: str, direction: Any, secret: str = "s") -> httpx.AsyncClient:
    """A host with a ticket, and no token."""
    client = cloud.open_as("")
    del client.headers["X-Auth-Token"]
    (ticket,) = TicketSecret(secret, clock).signed("host1", (ImageTicket(image, direction),))
    client.headers[HEADER] = ticket.text
    return client


async def formats(client: httpx.AsyncClient, image: str, name: str = "disk_format", value: Any = "qcow2") -> int:
    changes = [
        {
            "op": "replace" if name in {"disk_format", "name", "visibility"} else "add",
            "path": f"/{name}",
            "value": value,
        }
    ]
    answer = await client.patch(f"/v2/images/{image}", json=changes, headers={"Content-Type": PATCH})
    return answer.status_code


async def data(client: httpx.AsyncClient, image: str) -> int:
    return (
        await client.put(f"/v2/images/{image}/file", content=b"EVIL" * 8, headers={"Content-Type": STREAM})
    ).status_code


OTHER_CALLS = (
    ("GET", "/v2/images"),
    ("POST", "/v2/images"),
    ("DELETE", "/v2/images/{id}"),
    ("PUT", "/v2/images/{id}/tags/x"),
    ("DELETE", "/v2/images/{id}/tags/x"),
    ("PUT", "/v2/images/{id}/stage"),
    ("POST", "/v2/images/{id}/import"),
    ("POST", "/v2/images/{id}/actions/deactivate"),
    ("GET", "/v2/images/{id}/members"),
    ("POST", "/v2/images/{id}/members"),
    ("GET", "/v2/tasks"),
)


async def test_a_ticket_reads_its_image_and_nothing_else(cloud: ImageApp, clock: Clock) -> None:
    alice = cloud.open_as("alice")
    mine, other = (await made(alice))["id"], (await made(alice))["id"]
    for each in (mine, other):
        assert (await fill(alice, each, b"private")).status_code == 204
    host = shows(cloud, clock, mine, "read")
    assert (await host.get(f"/v2/images/{mine}")).json()["disk_format"] == "raw"
    assert (await host.get(f"/v2/images/{mine}/file")).content == b"private"
    for path in (f"/v2/images/{other}", f"/v2/images/{other}/file"):
        assert (await host.get(path)).status_code == 403
    assert await formats(host, mine) == 403
    assert await data(host, mine) == 403
    for method, path in OTHER_CALLS:
        assert (await host.request(method, path.format(id=mine))).status_code == 403, (method, path)


async def test_a_ticket_fills_its_image_while_it_waits_for_data(cloud: ImageApp, clock: Clock) -> None:
    alice = cloud.open_as("alice")
    mine, other = (await made(alice, disk_format=None, container_format=None))["id"], (await made(alice))["id"]
    host = shows(cloud, clock, mine, "fill")
    assert (await host.get(f"/v2/images/{mine}")).json()["status"] == "queued"
    for name, value in (
        ("name", "x"),
        ("visibility", "community"),
        ("kernel_id", other),
        ("os_hidden", True),
        ("tags", []),
    ):
        assert await formats(host, mine, name, value) == 403, name
    assert await formats(host, mine, value="raw") == 200
    assert await formats(host, mine, "container_format", "bare") == 200
    assert await data(host, other) == 403
    assert await data(host, mine) == 204
    assert (await host.get(f"/v2/images/{mine}/file")).status_code == 403, "what is filled is not read"
    assert await data(host, mine) == 403
    assert await formats(host, mine) == 403
    assert (await alice.get(f"/v2/images/{mine}/file")).content == b"EVIL" * 8
    for method, path in OTHER_CALLS:
        assert (await host.request(method, path.format(id=mine))).status_code == 403, (method, path)


async def test_a_ticket_counts_for_some_minutes(cloud: ImageApp, clock: Clock) -> None:
    alice = cloud.open_as("alice")
    mine = (await made(alice))["id"]
    host = shows(cloud, clock, mine, "read")
    signed_at = clock.now_s
    for clock.now_s, status in (
        (signed_at + LIFE_S, 200),
        (signed_at + LIFE_S + SKEW_S, 200),
        (signed_at + LIFE_S + SKEW_S + 2, 401),
        (signed_at - SKEW_S, 200),
        (signed_at - 10 * SKEW_S, 401),
    ):
        assert (await host.get(f"/v2/images/{mine}")).status_code == status, clock.now_s - signed_at


async def test_a_forged_ticket_is_refused(cloud: ImageApp, clock: Clock) -> None:
    mine = (await made(cloud.open_as("alice")))["id"]
    path = f"/v2/images/{mine}"
    assert (await shows(cloud, clock, mine, "read", "another secret").get(path)).status_code == 401
    host = shows(cloud, clock, mine, "read")
    text = host.headers[HEADER]
    for forged in (
        "",
        ".",
        "x",
        "x.y",
        text[1:],
        text[:-1],
        text.replace(".", ""),
        text + "0",
        f"e30=.{text[-64:]}",
        "a" * 5_000,
    ):
        host.headers[HEADER] = forged
        assert (await host.get(path)).status_code == 401, forged
    host.headers["X-Auth-Token"] = "alice"
    assert (await host.get(path)).status_code == 401, "a token beside it does not help"


async def test_the_account_of_hosts_changes_nothing_but_formats_of_what_waits(cloud: ImageApp) -> None:
    alice, host = cloud.open_as("alice"), cloud.open_as("host")
    active, queued = (await made(alice))["id"], (await made(alice))["id"]
    assert (await fill(alice, active, b"private")).status_code == 204
    for image in (active, queued):
        for name, value in (
            ("name", "x"),
            ("visibility", "community"),
            ("kernel_id", "x"),
            ("os_hidden", True),
            ("tags", ["x"]),
            ("protected", True),
        ):
            assert await formats(host, image, name, value) == 403, name
        for method, path in (each for each in OTHER_CALLS[2:] if each[0] != "GET"):
            assert (await host.request(method, path.format(id=image))).status_code in {400, 403, 404, 409, 415}, (
                method,
                path,
            )
        assert (await alice.get(f"/v2/images/{image}")).json()["tags"] == []
    assert await formats(host, active) == 403
    assert await data(host, active) == 403
    assert await formats(host, queued, value="raw") == 200
    assert await data(host, queued) == 204
    assert (await host.get(f"/v2/images/{active}/file")).content == b"private", (
        "an earlier release's agent boots from it"
    )
