"""Version documents: what clients read first, at `/`, `/v2` and `/v2.1`, without a token."""

from moorage.api.microversions import NEWEST, OLDEST
from moorage.model.json_types import JsonObject

DOCS = "http://docs.openstack.org/"


def _one(name: str) -> JsonObject:
    current = name == "v2.1"
    return {
        "id": name,
        "status": "CURRENT" if current else "DEPRECATED",
        "version": str(NEWEST) if current else "",
        "min_version": str(OLDEST) if current else "",
        "updated": "2013-07-23T11:33:21Z" if current else "2025-07-04T12:00:00Z",
    }


def _media_types(name: str) -> list[dict[str, str]]:
    return [
        {
            "base": "application/json",
            "type": f"application/vnd.openstack.compute+json;version={'2.1' if name == 'v2.1' else '2'}",
        }
    ]


def _path(name: str) -> str:
    return "v2.1" if name == "v2.1" else "v2"


NAMES = ("v2.0", "v2.1")


def listed(base_url: str) -> JsonObject:
    """`GET /`."""
    return {
        "versions": [{**_one(name), "links": [{"rel": "self", "href": f"{base_url}/{_path(name)}/"}]} for name in NAMES]
    }


def one(base_url: str, name: str) -> JsonObject:
    """`GET /v2.1`."""
    links = [
        {"rel": "self", "href": f"{base_url}/{_path(name)}/"},
        {"rel": "describedby", "type": "text/html", "href": DOCS},
    ]
    return {"version": {**_one(name), "links": links, "media-types": _media_types(name)}}


def choices(base_url: str, path: str) -> JsonObject:
    """The answer (300) to a path that names no version."""
    return {
        "choices": [
            {
                "id": name,
                "status": _one(name)["status"],
                "links": [{"rel": "self", "href": f"{base_url}/{_path(name)}{path}"}],
                "media-types": _media_types(name),
            }
            for name in NAMES
        ]
    }
