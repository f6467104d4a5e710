"""Security headers of every answer, and checks of requests: they must come from our own pages, and changes need the session's CSRF token."""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from moorage.webconsole.upstream import UpstreamRefused

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
CSRF_HEADER = "x-csrf-token"
CALLERS_KEPT_MAX = 10_000
MINUTE_S = 60.0


def check_origin(headers: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    """Refuse a request from another site's page; browsers name the site in a header. Raises UpstreamRefused."""
    site = headers.get("sec-fetch-site")
    if site == "same-origin":
        return
    origin = headers.get("origin")
    if origin is None and site in {None, "none"}:
        return
    if origin is not None and origin in allowed:
        return
    if site is None and origin is not None and urlsplit(origin).netloc == headers.get("host", ""):
        return
    raise UpstreamRefused(403, "This request came from another site's page.")


def check_json(headers: Mapping[str, str]) -> None:
    """Refuse bodies that are not JSON: a form of another site cannot send JSON without our permission. Raises UpstreamRefused."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UpstreamRefused(415, "The body must be JSON.")


def check_csrf(headers: Mapping[str, str], token: str) -> None:
    """Check the CSRF token. Raises UpstreamRefused when it is not the session's."""
    if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), token.encode()):
        raise UpstreamRefused(403, "This page is from an earlier login. Load it again.")


class FailedLogins:
    """Counts the failed logins of each address within a minute; the number of addresses is limited."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Check that the address may try to log in. Raises UpstreamRefused (429) after too many failed logins."""
        recent = [each for each in self._failed.get(caller, ()) if self._clock() - each < MINUTE_S]
        if len(recent) >= self._most:
            raise UpstreamRefused(429, "Too many logins failed from this address. Try again in a minute.")

    def count(self, caller: str) -> None:
        now = self._clock()
        recent = [each for each in self._failed.pop(caller, []) if now - each < MINUTE_S]
        self._failed[caller] = [*recent[-self._most :], now]
        if len(self._failed) > CALLERS_KEPT_MAX:
            self._failed.popitem(last=False)
