"""The web console's settings, and its fixed limits."""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class WebConsole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[webconsole]` of the configuration; its address is `[api.webconsole]`."""

    allowed_origins: tuple[str, ...] = ()
    """Origins, as `https://cloud.example`, under which a proxy shows it; without a proxy none is needed."""
    sessions_max: Count = 10_000
    """Limit of users who are logged in at once."""
    sessions_of_a_user_max: Count = 20
    """Limit of browsers in which one user is logged in; a further one ends the session that was used least recently."""
    session_idle_s: Seconds = 3_600.0
    """A session without requests for this long ends; in any case it ends with its token."""
    streams_max: Count = 500
    """Limit of pages that are followed live; each is an open request, so it is at most half of `[api.limits] requests_max`."""
    streams_of_a_session_max: Count = 8
    share_between_users: bool = True
    """Whether users with the same roles in the same project share polls. Set it to false if the policy file has rules that name a user."""
    logins_per_minute: Count = 10
    """Limit of failed logins of one address; further logins get 429."""
    interface: str = "public"
    """Which endpoints of Keystone's catalog are used."""
    call_s: Seconds = 20.0
    """How long one call to an API may take."""


class ConsoleAddresses(msgspec.Struct, frozen=True):
    """The deployment of the console: its identity service and region."""

    identity_url: str
    """URL of Keystone, with `/v3`."""
    region: str
    """The region whose endpoints of the catalog are used."""
    secure: bool = False
    """Whether browsers reach it over TLS; then its cookie is only sent over TLS."""
    ca_file: str = ""
    """PEM file of the CA of the APIs' certificates; empty: those that this machine trusts."""
