"""Limits of connections and requests: the settings `[api.limits]` and `[api.rates]`, which every HTTP listener has."""

from typing import Annotated

from msgspec import Meta, Struct

from moorage.model.errors import Invalid

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]


class HttpLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of each listener, applied before a request is authenticated."""

    url_max_bytes: Count = 16_384
    header_max_bytes: Count = 65_536
    """The request line and all headers together."""
    headers_max: Count = 100
    head_s: Seconds = 10.0
    """How long a request line and its headers may take to come; a TLS handshake as well."""
    body_s: Seconds = 20.0
    """How long a body may take to come, in addition to the time that `body_least_bytes_s` allows."""
    body_least_bytes_s: Count = 1_024
    """Slowest speed of a body, in bytes per second, however long it is. Time in which the listener does not read is not counted."""
    answer_s: Seconds = 60.0
    """How long a client may read nothing of an answer that waits for it."""
    keep_alive_s: Seconds = 75.0
    """How long a connection may be idle. Longer than clients keep theirs: if the server closes first, the client's next request is lost."""
    connections_max: Count = 4_096
    connections_of_an_address_max: Count = 1_024
    """Of one IPv4 address, or of one /64 of IPv6. Trusted proxies have no such limit."""
    requests_max: Count = 1_000
    """Requests that are answered at the same time; further ones get 503."""


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests projects and addresses may send to one listener; 0 is no limit."""

    project_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """Requests of one project per second, on average. Users with the role `service` are not counted."""
    project_burst: Count = 100
    """How many a project may send at once after a pause."""
    address_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """Requests of one address (IPv6: of one /64) per second, with or without a token."""
    address_burst: Count = 100
    count_loopback: bool = False
    """Whether requests from this machine are counted too."""
    kept_max: Count = 10_000
    """How many projects, and how many addresses, one listener remembers; the least recent is forgotten first."""


def check_limits(limits: HttpLimits) -> None:
    """Check the limits. Raises Invalid for limits that would refuse every request."""
    if limits.url_max_bytes > limits.header_max_bytes:
        raise Invalid("[api.limits] url_max_bytes is at most header_max_bytes: the URL is part of what they count")
