"""The real services answer, and separate projects."""

import time

import httpx
import pytest

from moorage_testing.real_services.fixtures import RealService

pytestmark = pytest.mark.real


def _get(service: RealService, path: str, who: str) -> httpx.Response:
    return httpx.get(service.url + path, headers={"X-Auth-Token": service.token(who)}, timeout=120)


def test_every_service_answers_its_users(
    real_network: RealService, real_image: RealService, real_placement: RealService
) -> None:
    seen = _get(real_network, "/v2.0/networks", "alice").json()["networks"]
    mine = real_network.logins["alice"].project_id
    assert all(network["router:external"] or network["project_id"] == mine for network in seen)
    images = _get(real_image, "/v2/images", "alice").json()["images"]
    assert all(image["owner"] == mine or image["visibility"] == "public" for image in images)
    assert _get(real_placement, "/resource_providers", "admin").json() == {"resource_providers": []}


def test_placement_and_agents_are_for_the_administrator(real_network: RealService, real_placement: RealService) -> None:
    assert _get(real_placement, "/resource_providers", "alice").status_code == 403
    hosts = {agent["host"] for agent in _get(real_network, "/v2.0/agents", "admin").json()["agents"] if agent["alive"]}
    assert {"cmp1", "cmp3"} <= hosts


def test_cinder_makes_a_volume_for_its_users(real_volume: RealService) -> None:
    headers = {"X-Auth-Token": real_volume.token("alice"), "OpenStack-API-Version": "volume 3.71"}
    url = f"{real_volume.url}/v3/{real_volume.logins['alice'].project_id}/volumes"
    made = httpx.post(url, headers=headers, json={"volume": {"size": 1}}, timeout=120)
    assert made.status_code == 202, made.text
    path = f"{url}/{made.json()['volume']['id']}"
    deadline = time.monotonic() + 180
    while httpx.get(path, headers=headers, timeout=120).json()["volume"]["status"] != "available":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert httpx.delete(path, headers=headers, timeout=120).status_code == 202
