"""What the explanation of a server's host says."""

from typing import Any

from moorage_testing.api_user import Person


async def explained(admin: Person, server: str) -> dict[str, Any]:
    found: dict[str, Any] = (await admin.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]
    return found
