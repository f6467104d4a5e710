"""Lists are read to their end even if the service returns fewer rows per page than requested.

Operators of Neutron and Glance may limit that (`pagination_max_limit`, `api_limit_max`).  The service says that there are more.
"""

from typing import Any

import httpx
import pytest

from moorage.clients.http import ServiceClient
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkClient
from moorage.model.errors import Unavailable

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


def glance_pages(request: httpx.Request) -> httpx.Response:
    page, full = after(request)
    body: dict[str, Any] = {"images": [{"id": each} for each in page]}
    if full:
        body["next"] = f"/v2/images?marker={page[-1]}"
    return httpx.Response(200, json=body)


async def test_all_pages_of_ports_are_read() -> None:
    network = NetworkClient(ServiceClient("network", "http://network", transport=httpx.MockTransport(neutron)))
    assert {key: set(ports) for key, ports in (await network.devices()).items()} == {
        f"of-{each}": {each} for each in ROWS
    }
    await network.close()


async def test_pages_of_images_are_read_up_to_the_limit() -> None:
    neighbour = ServiceClient("image", "http://image", transport=httpx.MockTransport(glance_pages))
    images = ImageClient(neighbour)
    for limit, wanted in ((100, ROWS), (3, ROWS[:3])):
        rows = await images.list_as("token", {}, limit=limit, marker=None)
        assert [row["id"] for row in rows] == wanted
    await neighbour.close()


def with_a_short_list(request: httpx.Request) -> httpx.Response:
    """Two networks with a subnet each; the list of subnets lacks one."""
    networks = [{"id": each, "subnets": [f"of-{each}"]} for each in ("whole", "short")]
    subnets = [{"id": "of-whole", "cidr": "10.0.0.0/24", "network_id": "whole"}]
    asked = request.url.params.get("network_id")
    match request.url.path.removeprefix("/v2.0/"):
        case "networks":
            return httpx.Response(200, json={"networks": networks})
        case "subnets":
            return httpx.Response(200, json={"subnets": [each for each in subnets if asked in {None, "whole"}]})
        case "extensions":
            return httpx.Response(200, json={"extensions": []})
        case path:
            return httpx.Response(
                200, json={"network": next(each for each in networks if path.endswith(str(each["id"])))}
            )


async def test_a_network_with_an_unlisted_subnet_is_not_cached() -> None:
    network = NetworkClient(
        ServiceClient("network", "http://network", transport=httpx.MockTransport(with_a_short_list))
    )
    assert [each.id for each in await network.networks()] == ["whole"]
    assert [each.id for each in (await network.network("whole")).subnets] == ["of-whole"]
    with pytest.raises(Unavailable) as refused:
        await network.network("short")
    assert "of-short" in refused.value.private
    await network.close()
