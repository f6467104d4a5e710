"""Which pages may open a console: those of the proxy itself, and of the origins that an operator names.

A browser says with `Origin` whose page opens a WebSocket; a client that is no browser says nothing and needs nothing.  Without this
check any page that a user visits could use a token that it got hold of, or a cookie (CVE-2015-0259 is that fault in Nova).
"""

from collections.abc import Collection
from urllib.parse import urlsplit

from moorage.model.errors import Forbidden

SECURE = {"http": "http", "ws": "http", "https": "https", "wss": "https"}


def refuse_stranger(
    origin: str | None, host: str | None, allowed: Collection[str], *, base_url: str, forwarded_proto: str | None = None
) -> None:
    """Raises Forbidden for a page of another origin.

    `host`: the request's own Host header. `allowed`: host names beside it. `base_url`: where people reach the proxy; a page that was
    fetched in the clear may not open a console that is served with TLS, nor the other way round. `forwarded_proto`: what a load
    balancer in front says of the page's scheme.
    """
    if origin is None:
        return
    page = _split(origin)
    if page is None:
        raise Forbidden("the Origin header is not valid")
    scheme, name = page
    own = _split(f"//{host or ''}")
    names = {each.lower() for each in allowed} | ({own[1]} if own is not None else set())
    if name not in names:
        raise Forbidden(f"pages of {name} may not open consoles here")
    wanted = SECURE.get(urlsplit(base_url).scheme)
    if SECURE.get((forwarded_proto or scheme).lower()) != wanted:
        raise Forbidden("the page's protocol is not that of the console")


def _split(url: str) -> tuple[str, str] | None:
    """Scheme and host name; None for what has no host name."""
    try:
        split = urlsplit(url)
        name = split.hostname
    except ValueError:
        return None
    return (split.scheme, name.lower()) if name else None
