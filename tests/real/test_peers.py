"""The real neighbours answer, and keep people apart."""

import httpx
import pytest

from moorage.testing.peers.fixtures import RealService

pytestmark = pytest.mark.real


def _get(service: RealService, path: str, who: str) -> httpx.Response:
    return httpx.get(service.url + path, headers={"X-Auth-Token": service.token(who)}, timeout=30)


def test_every_neighbour_answers_its_users(
    real_network: RealService, real_image: RealService, real_placement: RealService
) -> None:
    seen = _get(real_network, "/v2.0/networks", "alice").json()["networks"]
    mine = real_network.logins["alice"].project_id
    assert all(network["router:external"] or network["project_id"] == mine for network in seen)
    images = _get(real_image, "/v2/images", "alice").json()["images"]
    assert all(image["owner"] == mine for image in images)
    assert _get(real_placement, "/resource_providers", "admin").json() == {"resource_providers": []}


def test_placement_and_agents_are_for_the_administrator(real_network: RealService, real_placement: RealService) -> None:
    assert _get(real_placement, "/resource_providers", "alice").status_code == 403
    hosts = {agent["host"] for agent in _get(real_network, "/v2.0/agents", "admin").json()["agents"] if agent["alive"]}
    assert {"cmp1", "cmp3"} <= hosts
