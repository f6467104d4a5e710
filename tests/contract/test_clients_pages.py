"""Lists are read to their end also where the service gives fewer rows at once than were asked for.

Operators of Neutron and Glance may limit that (`pagination_max_limit`, `api_limit_max`).  The service says that there are more.
"""

from typing import Any

import httpx

from moorage.clients.http import Neighbour
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkClient

MOST = 2
ROWS = [f"row-{number}" for number in range(5)]


def after(request: httpx.Request) -> tuple[list[str], bool]:
    """The page that is asked for, and whether it is followed by another, as both services reckon."""
    marker = request.url.params.get("marker")
    left = ROWS if marker is None else ROWS[ROWS.index(marker) + 1 :]
    page = left[: min(MOST, int(request.url.params["limit"]))]
    return page, len(page) == MOST


def neutron(request: httpx.Request) -> httpx.Response:
    page, full = after(request)
    body: dict[str, Any] = {
        "ports": [
            {
                "id": each,
                "network_id": "",
                "mac_address": "",
                "device_id": f"of-{each}",
                "fixed_ips": [],
                "binding:host_id": "",
            }
            for each in page
        ]
    }
    if full:
        body["ports_links"] = [{"rel": "next", "href": f"http://network/v2.0/ports?marker={page[-1]}"}]
    return httpx.Response(200, json=body)


def glance(request: httpx.Request) -> httpx.Response:
    page, full = after(request)
    body: dict[str, Any] = {"images": [{"id": each} for each in page]}
    if full:
        body["next"] = f"/v2/images?marker={page[-1]}"
    return httpx.Response(200, json=body)


async def test_all_ports_are_seen() -> None:
    network = NetworkClient(Neighbour("network", "http://network", transport=httpx.MockTransport(neutron)))
    assert {key: set(ports) for key, ports in (await network.devices()).items()} == {
        f"of-{each}": {each} for each in ROWS
    }
    await network.close()


async def test_all_images_are_seen_and_no_more_than_were_wanted() -> None:
    neighbour = Neighbour("image", "http://image", transport=httpx.MockTransport(glance))
    images = ImageClient(neighbour)
    for limit, wanted in ((100, ROWS), (3, ROWS[:3])):
        rows = await images.list_as("token", {}, limit=limit, marker=None)
        assert [row["id"] for row in rows] == wanted
    await neighbour.close()
