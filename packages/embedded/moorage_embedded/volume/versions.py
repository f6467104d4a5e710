"""Microversions: which one a request asks for, and the documents that say which there are."""

import re
from typing import Any

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.volume.faults import bad

MIN, MAX = (3, 0), (3, 71)
UPDATED = "2023-08-31T00:00:00Z"
HEADER = "OpenStack-API-Version"
_VERSION = re.compile(r"([1-9][0-9]{0,3})\.([1-9][0-9]{0,3}|0)")


def requested_version(header: str | None) -> int:
    """The minor number. Raises 400 for what is no version, 406 for one that is not served."""
    for part in (header or "").split(","):
        service, _, said = part.strip().partition(" ")
        if service == "volume" and (said := said.strip()):
            return _minor(said)
    return MIN[1]


def _minor(said: str) -> int:
    if said == "latest":
        return MAX[1]
    found = _VERSION.fullmatch(said)
    if found is None:
        raise bad(f"API Version String {said[:50]} is of invalid format. Must be of format MajorNum.MinorNum.")
    number = (int(found[1]), int(found[2]))
    if not MIN <= number <= MAX:
        raise HttpFault(
            406,
            f"Version {said} is not supported by the API. Minimum is {MIN[0]}.{MIN[1]} and maximum is {MAX[0]}.{MAX[1]}.",
        )
    return number[1]


def document(public_url: str) -> dict[str, Any]:
    links = [
        {"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"},
        {"rel": "self", "href": f"{public_url}/v3/"},
    ]
    media = [{"base": "application/json", "type": "application/vnd.openstack.volume+json;version=3"}]
    return {
        "versions": [
            {
                "id": "v3.0",
                "status": "CURRENT",
                "version": f"{MAX[0]}.{MAX[1]}",
                "min_version": f"{MIN[0]}.{MIN[1]}",
                "updated": UPDATED,
                "links": links,
                "media-types": media,
            }
        ]
    }
