"""Logins at Keystone with a password or an application credential; and tokens for another project of the same user."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moorage.webconsole.sessions import Identity
from moorage.webconsole.settings import ConsoleAddresses
from moorage.webconsole.upstream import AWAY, Down, Upstream, UpstreamRefused

Name = Annotated[str, Meta(max_length=255)]
Secret = Annotated[str, Meta(max_length=4_096)]
SERVICES = {"compute": "compute", "network": "network", "image": "image"}
PROJECTS_MAX = 200
"""Projects that are offered to a user."""
WRONG = "The name, the password or the project is not right, or the account is locked."
NO_COMPUTE = "Keystone's catalog has no compute endpoint for this project in region {region}."


class LoginForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the login page sends: a user with a password and a project, or an application credential by its id."""

    user: Name = ""
    password: Secret = ""
    domain: Name = "Default"
    project: Name = ""
    project_domain: Name = ""
    credential_id: Name = ""
    credential_secret: Secret = ""


class OtherProject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    project_id: Annotated[str, Meta(min_length=1, max_length=64)]


class Keystone:
    """Asks for tokens, and ends them."""

    def __init__(self, upstream: Upstream, place: ConsoleAddresses, interface: str) -> None:
        self._upstream = upstream
        self._place = place
        self._interface = interface

    async def log_in(self, wanted: LoginForm, caller: str) -> Identity:
        """Log a user in. `caller`: the browser's address, for Keystone's own limits.

        Raises UpstreamRefused (401, 400) when Keystone refuses, and Down when it does not answer.
        """
        if wanted.credential_id:
            method = {"id": wanted.credential_id, "secret": wanted.credential_secret}
            auth: dict[str, Any] = {
                "identity": {"methods": ["application_credential"], "application_credential": method}
            }
        else:
            if not (wanted.user and wanted.password and wanted.project):
                raise UpstreamRefused(400, "A user, a password and a project are needed, or an application credential.")
            user = {"name": wanted.user, "domain": {"name": wanted.domain}, "password": wanted.password}
            project = {"name": wanted.project, "domain": {"name": wanted.project_domain or wanted.domain}}
            auth = {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": project},
            }
        return await self._token(auth, {"X-Forwarded-For": caller} if caller else {}, wanted.credential_id)

    async def other_project(self, identity: Identity, project_id: str) -> Identity:
        """Get a token of the same user for another project. Raises UpstreamRefused when the user has no role there."""
        if identity.restricted:
            raise UpstreamRefused(403, "An application credential is good for its own project only.")
        auth = {
            "identity": {"methods": ["token"], "token": {"id": identity.token}},
            "scope": {"project": {"id": project_id}},
        }
        return await self._token(auth, {}, "")

    async def projects(self, identity: Identity) -> list[dict[str, str]]:
        """Return the projects in which the user has a role. Raises Refused or Down as other calls do."""
        if identity.restricted:
            return [{"id": identity.project_id, "name": identity.project}]
        answer = await self._upstream.call("GET", f"{self._place.identity_url}/auth/projects", identity.token)
        rows = [{"id": each["id"], "name": each["name"]} for each in answer.body["projects"][:PROJECTS_MAX]]
        return sorted(rows, key=lambda row: row["name"])

    async def log_out(self, identity: Identity) -> None:
        """Revoke the token. Raises Refused or Down as other calls do."""
        url = f"{self._place.identity_url}/auth/tokens"
        await self._upstream.call("DELETE", url, identity.token, headers={"X-Subject-Token": identity.token})

    async def _token(self, auth: dict[str, Any], headers: Mapping[str, str], restricted: str) -> Identity:
        url = f"{self._place.identity_url}/auth/tokens"
        try:
            answer = await self._upstream.call("POST", url, json={"auth": auth}, headers=headers)
        except UpstreamRefused as refused:
            raise UpstreamRefused(refused.status, WRONG if refused.status == 401 else refused.sentence) from refused
        try:
            return self._read(answer.headers["x-subject-token"], answer.body["token"], restricted)
        except (KeyError, TypeError, ValueError) as odd:
            raise Down(AWAY, "Keystone answered with what is no token for a project.") from odd

    def _read(self, token: str, token_body: dict[str, Any], restricted: str) -> Identity:
        endpoints = {name: url for name, kind in SERVICES.items() if (url := self._endpoint(token_body, kind))}
        if "compute" not in endpoints:
            raise UpstreamRefused(403, NO_COMPUTE.format(region=self._place.region))
        return Identity(
            token=token,
            expires_at=datetime.fromisoformat(token_body["expires_at"]).timestamp(),
            user=token_body["user"]["name"],
            user_id=token_body["user"]["id"],
            project=token_body["project"]["name"],
            project_id=token_body["project"]["id"],
            roles=frozenset(each["name"] for each in token_body["roles"]),
            endpoints=endpoints,
            restricted=restricted,
        )

    def _endpoint(self, token_body: dict[str, Any], kind: str) -> str:
        for service in token_body["catalog"]:
            if service["type"] == kind:
                for each in service["endpoints"]:
                    is_region = each.get("region_id", each.get("region")) == self._place.region
                    if each["interface"] == self._interface and is_region:
                        return str(each["url"]).rstrip("/")
        return ""
