"""Numbers in queries that are too large for a database: an empty or a full page, or a refusal, never a 500."""

from typing import Any

import pytest

from moorage_testing.compute_app import ADMIN
from moorage_testing.fake_server_service import a_server

LONG = ("9" * 30, "9" * 5000)
"""The second is longer than Python reads as a number."""
SERVER = f"/servers/{a_server(1).id}"
PATHS = (
    "/servers?limit={}",
    "/servers/detail?limit={}",
    "/flavors?limit={}",
    "/os-keypairs?limit={}",
    "/os-hypervisors?limit={}",
    "/os-simple-tenant-usage?limit={}",
    "/os-server-groups?limit={}",
    "/os-server-groups?offset={}",
    SERVER + "/os-instance-actions?limit={}",
)


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_any_size(servers: Any, path: str) -> None:
    await servers.keep(a_server(1))
    for number in LONG:
        status = (await servers.get(path.format(number), by=ADMIN)).status_code
        assert status == 200 or (status == 400 and number == LONG[1])
    nothing = await servers.get(path.format(""), at="latest", by=ADMIN)
    assert (nothing.status_code, "should be non-empty" in nothing.text) == (400, True)


@pytest.mark.parametrize("asked", ["name=", "ip=", "flavor=%5B", "auto_disk_config=%5B", "tags=%2B", "not-tags="])
async def test_an_invalid_regular_expression_is_refused(servers: Any, asked: str) -> None:
    answer = await servers.get(f"/servers?{asked}", at="2.26", by=ADMIN)
    assert (answer.status_code, "is not a 'regex'" in answer.text) == (400, True)
    named = asked.partition("=")[0]
    assert (await servers.get(f"/servers?{named}=a", at="2.26", by=ADMIN)).status_code == 200


async def test_a_service_of_any_number(servers: Any) -> None:
    for number in (*LONG, "%C2%B2", "%D9%A3"):
        answer = await servers.ask("DELETE", f"/os-services/{number}", at="2.1", by=ADMIN)
        assert answer.status_code in {400, 404}
