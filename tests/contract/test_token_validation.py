"""Only the identity service decides whether a token is valid: neither a lost role of the service user nor the local clock makes it invalid."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from moorage.clients.http import ServiceClient
from moorage.clients.identity import IdentityClient
from moorage.model.errors import Unauthenticated, Unavailable

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Keystone:
    """Answers as it is told to, with its own time of day."""

    def __init__(self, status: int = 200, *, left_s: float = 3600.0, at: datetime | None = NOW) -> None:
        self.status, self.asked, self.at = status, 0, at
        expires = ((at or datetime.now(UTC)) + timedelta(seconds=left_s)).isoformat()
        self.token: dict[str, Any] = {"user": {"id": "u"}, "project": {"id": "p"}, "roles": [], "expires_at": expires}

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        headers = {} if self.at is None else {"Date": format_datetime(self.at, usegmt=True)}
        body = {"token": self.token} if self.status == 200 else {"error": {"message": "no", "code": self.status}}
        return httpx.Response(self.status, json=body, headers=headers)

    def client(self) -> IdentityClient:
        return IdentityClient(ServiceClient("identity", "http://k/v3", transport=httpx.MockTransport(self.answer)))


@pytest.mark.parametrize("status", [403, 401, 409])
async def test_a_refused_service_token_is_an_outage_and_not_cached(status: int) -> None:
    keystone = Keystone(status)
    client = keystone.client()
    with pytest.raises(Unavailable) as refused:
        await client.validate("users-good-token")
    assert refused.value.code == "credentials"
    keystone.status = 200
    assert (await client.validate("users-good-token")).user == "u"


@pytest.mark.parametrize("status", [400, 404])
async def test_a_refused_user_token_is_cached(status: int) -> None:
    keystone = Keystone(status)
    client = keystone.client()
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await client.validate("users-bad-token")
    assert keystone.asked == 1


@pytest.mark.parametrize("ours_is_ahead_s", [-86_400.0, 86_400.0])
async def test_an_accepted_token_is_valid_whatever_the_local_clock(ours_is_ahead_s: float) -> None:
    keystone = Keystone(at=datetime.now(UTC) - timedelta(seconds=ours_is_ahead_s))
    client = keystone.client()
    for _ in range(3):
        assert (await client.validate("users-good-token")).user == "u"
    assert keystone.asked == 1  # and it is kept by the clock of who gave it


async def test_a_token_in_its_last_second_is_valid_and_not_cached() -> None:
    keystone = Keystone(left_s=-1.0)
    client = keystone.client()
    for _ in range(2):
        assert (await client.validate("users-good-token")).user == "u"
    assert keystone.asked == 2
    silent = Keystone(left_s=-60.0, at=None)  # it does not say what time it is there
    assert (await silent.client().validate("users-good-token")).user == "u"
