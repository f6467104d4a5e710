"""What an operator may set of the web console, and the limits that nobody needs to set."""

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
    """Users who are logged in at once."""
    session_idle_s: Seconds = 3_600.0
    """A session that asked for nothing for so long is over; it is over with its token in any case."""
    streams_max: Count = 500
    """Pages that are followed live at once; each is a request that stays open, so it is at most half of `[api.limits] requests_max`."""
    streams_of_a_session_max: Count = 8
    share_between_users: bool = True
    """Users with the same roles in the same project share what is polled. False where the policy file has rules that name a user."""
    logins_per_minute: Count = 10
    """Logins that fail, of one address; more are 429."""
    interface: str = "public"
    """Which endpoints of Keystone's catalog are used."""
    call_s: Seconds = 20.0
    """How long one call to an API may take."""


class Place(msgspec.Struct, frozen=True):
    """Where the console is and whom it asks."""

    identity_url: str
    """Of Keystone, with `/v3`."""
    region: str
    """Endpoints of the catalog that are in it."""
    secure: bool = False
    """Browsers reach it over TLS, so that its cookie is for TLS only."""
    ca_file: str = ""
    """PEM file of the CA of the APIs' certificates; empty: those that this machine trusts."""
