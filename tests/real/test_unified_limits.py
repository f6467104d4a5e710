"""Limits of compute at a real Keystone are found, read and created as oslo.limit and Nova do it."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers.real_services_cloud import cloud_with_real_services

from moorage.clients.compute_limits import ComputeLimitsClient
from moorage.main.config import Hosts
from moorage.model.errors import Forbidden
from moorage.operations.unified_limits import MissingLimits, UnifiedLimitsCache
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real


@pytest.fixture
async def limits(real_stack: Stack, tmp_path: Path) -> AsyncIterator[ComputeLimitsClient]:
    async with cloud_with_real_services(real_stack, tmp_path, Hosts(count=1)) as cloud:
        client = cloud.region.clients.limits
        yield client
        place = await client.place()
        where: Mapping[str, Any] = {"service_id": place.service}
        token = {"X-Auth-Token": real_stack.token("admin")}
        async with httpx.AsyncClient(base_url=real_stack.identity_url, headers=token) as keystone:
            for kind in ("limits", "registered_limits"):
                for each in (await keystone.get(f"/{kind}", params=where)).json()[kind]:
                    (await keystone.delete(f"/{kind}/{each['id']}")).raise_for_status()


async def test_limits_of_a_real_keystone(limits: ComputeLimitsClient, real_stack: Stack) -> None:
    project = real_stack.logins["admin"].project_id
    await limits.check_model()
    place = await limits.place()
    await limits.register(place, "servers", 5)
    await limits.register(place, "class:VCPU", -1)
    assert await limits.registered() == {"servers": 5, "class:VCPU": -1}
    await limits.limit_project(place, project, "servers", 2)
    assert await limits.of_project(project) == {"servers": 2}
    assert await limits.of_project("another") == {}
    found = await UnifiedLimitsCache(limits, MissingLimits()).of(project)
    assert [found.limit(each) for each in ("servers", "class:VCPU", "class:DISK_GB")] == [2, -1, -1]
    with pytest.raises(Forbidden, match="no registered limit"):
        await limits.limit_project(place, project, "class:DISK_GB", 3)
