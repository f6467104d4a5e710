"""Port descriptions when more hosts are asked about than the embedded network service keeps."""

import pytest
from tests.api.test_embedded_network_descriptions import HERE, THERE, changed, described, network
from tests.helpers.embedded_network_cloud import Cloud, cloud

from moorage_embedded.network import port_descriptions

__all__ = ["cloud", "network"]


async def test_hosts_of_one_question_are_kept_and_others_go(
    cloud: Cloud, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_descriptions, "HOSTS_KEPT_MAX", 1)
    port = await cloud.port(network)
    await cloud.bind(port["id"], THERE)
    for _ in range(2):
        assert (await changed(cloud, 0)).hosts == (HERE, THERE)
        assert [each.port for each in (await described(cloud, THERE)).ports] == [port["id"]]
