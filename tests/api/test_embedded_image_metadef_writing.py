"""Metadata definitions of the embedded image service, written over HTTP as Glance takes them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage_embedded.image import metadef_store
from moorage_testing.image_app import ImageApp, image_service

BASE = "/v2/metadefs/namespaces"
CPUS = {"title": "vCPUs", "type": "integer", "minimum": 1, "default": 2}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[ImageApp]:
    async with image_service(tmp_path) as service:
        yield service


class Speaker:
    """Asks as one caller and checks the status."""

    def __init__(self, app: ImageApp, by: str = "admin") -> None:
        self.client = app.open_as(by)

    async def __call__(self, method: str, path: str, status: int, body: Any = None, **headers: str) -> Any:
        more = {} if body is None else {"json": body}
        answer = await self.client.request(method, path, headers=headers, **more)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None


async def make(ask: Speaker, name: str = "NS", **fields: Any) -> Any:
    return await ask("POST", BASE, 201, {"namespace": name, **fields})


async def test_a_namespace_is_made_shown_changed_and_deleted(app: ImageApp) -> None:
    ask = Speaker(app)
    made = await make(ask, display_name="One", description="The first.")
    assert (made["owner"], made["visibility"], made["protected"]) == ("admin", "private", False)
    assert made["self"] == f"{BASE}/NS"
    assert made["created_at"] == made["updated_at"]
    assert await ask("GET", f"{BASE}/NS", 200) == made
    changed = await ask("PUT", f"{BASE}/NS", 200, {"namespace": "NEW", "visibility": "public", "owner": "red"})
    assert "display_name" not in changed
    assert (changed["namespace"], changed["visibility"], changed["owner"]) == ("NEW", "public", "red")
    await ask("GET", f"{BASE}/NS", 404)
    await make(ask)
    said = await ask("PUT", f"{BASE}/NS", 409, {"namespace": "NEW"})
    assert said["message"] == (
        "Invalid update. It would result in a duplicate metadata definition namespace with the same name of NEW"
    )
    said = await ask("POST", BASE, 409, {"namespace": "NEW"})
    assert said["message"] == "The metadata definition namespace=NEW already exists."
    await ask("DELETE", f"{BASE}/NEW", 204)
    said = await ask("DELETE", f"{BASE}/NEW", 404)
    assert said["message"] == "Namespace NEW not found"
    assert (await ask("GET", f"{BASE}/NEW", 404))["message"] == "Metadata definition namespace=NEW was not found."


async def test_a_namespace_is_made_with_all_that_is_in_it(app: ImageApp) -> None:
    ask = Speaker(app)
    parts = {
        "resource_type_associations": [{"name": "OS::Nova::Flavor", "prefix": "hw:"}, {"name": "Ours"}],
        "properties": {"cpus": CPUS},
        "objects": [{"name": "box", "required": ["cpus"], "properties": {"cpus": CPUS}}],
        "tags": [{"name": "web"}],
    }
    made = await make(ask, **parts)
    assert {name: made[name] for name in parts} == parts
    shown = await ask("GET", f"{BASE}/NS", 200)
    assert shown["properties"]["cpus"] == CPUS | {"default": "2"}, "a default is a text, as in Glance"
    assert shown["objects"][0]["self"] == f"{BASE}/NS/objects/box"
    flavors = await ask("GET", f"{BASE}/NS?resource_type=OS::Nova::Flavor", 200)
    assert list(flavors["properties"]) == ["hw:cpus"]
    assert list(flavors["objects"][0]["properties"]) == flavors["objects"][0]["required"] == ["hw:cpus"]
    types = (await ask("GET", "/v2/metadefs/resource_types", 200))["resource_types"]
    assert "Ours" in {each["name"] for each in types}
    await ask("DELETE", f"{BASE}/NS", 204)
    types = (await ask("GET", "/v2/metadefs/resource_types", 200))["resource_types"]
    assert "Ours" in {each["name"] for each in types}, "a type stays, as in Glance"
    twice = {
        "tags": [{"name": "a"}, {"name": "A"}],
        "objects": [{"name": "a"}, {"name": "a"}],
        "resource_type_associations": [{"name": "a"}, {"name": "a"}],
    }
    for part, said in twice.items():
        await ask("POST", BASE, 409, {"namespace": "twice", part: said})
    await ask("GET", f"{BASE}/twice", 404)


async def test_who_sees_and_writes_what(app: ImageApp) -> None:
    """Administrators write, everybody reads what is public or the project's, and the rest is not there."""
    admin, alice, bob = Speaker(app), Speaker(app, "alice"), Speaker(app, "bob")
    await make(admin, "hers", owner="red")
    await make(admin, "all", visibility="public")
    listed = [(await each("GET", BASE, 200))["namespaces"] for each in (admin, alice, bob)]
    assert [[each["namespace"] for each in one] for one in listed] == [["all", "hers"], ["all", "hers"], ["all"]]
    await alice("GET", f"{BASE}/hers/objects", 200)
    for part in ("", "/objects", "/objects/x", "/properties", "/properties/x", "/tags", "/tags/x", "/resource_types"):
        await bob("GET", f"{BASE}/hers{part}", 404)
    for path, body in (
        ("", {"namespace": "x"}),
        ("/objects/x", {"name": "x"}),
        ("/properties/x", {"name": "x"} | CPUS),
    ):
        await alice("PUT", f"{BASE}/hers{path}", 403, body)
        await bob("PUT", f"{BASE}/hers{path}", 404, body)
    said = await alice("POST", BASE, 403, {"namespace": "x"})
    assert said["message"] == "You are not authorized to complete add_metadef_namespace action."
    await alice("DELETE", f"{BASE}/hers", 403)
    await bob("DELETE", f"{BASE}/hers", 404)
    nobody = Speaker(app, "nobody")
    assert (await nobody("GET", f"{BASE}/all", 404))["message"] == "The resource could not be found."


async def test_lists_have_pages_filters_and_an_order(app: ImageApp) -> None:
    ask = Speaker(app)
    for number in range(3):
        await make(ask, f"n{number}", visibility="public" if number else "private", display_name=f"{5 - number}")
    await ask("POST", f"{BASE}/n1/resource_types", 201, {"name": "T"})

    async def names(query: str) -> list[str]:
        return [each["namespace"] for each in (await ask("GET", f"{BASE}?{query}", 200))["namespaces"]]

    assert await names("") == ["n2", "n1", "n0"]
    assert await names("sort_dir=asc") == ["n0", "n1", "n2"]
    assert await names("sort_key=display_name&sort_dir=asc") == ["n2", "n1", "n0"]
    assert await names("visibility=private") == ["n0"]
    assert await names("resource_types=T,other") == ["n1"]
    assert await names("limit=0") == []
    page = await ask("GET", f"{BASE}?limit=2&visibility=public", 200)
    assert page["first"] == f"{BASE}?limit=2&visibility=public"
    assert page["next"] == f"{BASE}?limit=2&visibility=public&marker=n1"
    assert (await ask("GET", page["next"], 200))["namespaces"] == []
    said = await ask("GET", f"{BASE}?marker=n9", 404)
    assert said["message"] == "Metadata definition namespace=n9 was not found."


async def test_of_a_protected_namespace_nothing_is_deleted(app: ImageApp) -> None:
    ask = Speaker(app)
    await make(
        ask, protected=True, objects=[{"name": "o"}], tags=[{"name": "t"}], properties={"p": CPUS},
        resource_type_associations=[{"name": "r"}],
    )  # fmt: skip
    for path, what in (
        ("", "namespace NS"), ("/objects", "namespace NS"), ("/tags", "namespace NS"), ("/properties", "namespace NS"),
        ("/objects/o", "object o"), ("/tags/t", "tag t"), ("/properties/p", "property p"),
        ("/resource_types/r", "resource-type-association r"),
    ):  # fmt: skip
        said = await ask("DELETE", f"{BASE}/NS{path}", 403)
        assert said["message"] == f"Metadata definition {what} is protected and cannot be deleted."
    await ask("PUT", f"{BASE}/NS", 200, {"namespace": "NS"})
    for path in ("/objects/o", "/tags/t", "/properties/p", "/resource_types/r", "/objects", "/tags", "/properties", ""):
        await ask("DELETE", f"{BASE}/NS{path}", 204)


async def test_objects(app: ImageApp) -> None:
    ask, path = Speaker(app), f"{BASE}/NS/objects"
    await make(ask)
    made = await ask("POST", path, 201, {"name": "a", "description": "One.", "properties": {"cpus": CPUS}})
    assert made["properties"]["cpus"]["default"] == "2"
    assert await ask("GET", f"{path}/a", 200) == made
    await ask("POST", path, 201, {"name": "b"})
    said = await ask("POST", path, 409, {"name": "a"})
    assert said["message"] == "A metadata definition object with name=a already exists in namespace=NS."
    await ask("PUT", f"{path}/a", 409, {"name": "b"})
    changed = await ask("PUT", f"{path}/a", 200, {"name": "c", "required": ["x"]})
    assert (changed["required"], changed["properties"], changed["created_at"]) == (["x"], {}, made["created_at"])
    assert "description" not in changed
    listed = await ask("GET", path, 200)
    assert [each["name"] for each in listed["objects"]] == ["c", "b"]
    for method in ("GET", "DELETE"):
        said = await ask(method, f"{path}/a", 404)
        assert said["message"] == "Could not find metadata object a"
    await ask("PUT", f"{path}/a", 404, {"name": "a"})
    await ask("DELETE", path, 204)
    assert (await ask("GET", path, 200))["objects"] == []


async def test_properties(app: ImageApp) -> None:
    ask, path = Speaker(app), f"{BASE}/NS/properties"
    await make(ask, resource_type_associations=[{"name": "T", "prefix": "hw_"}, {"name": "bare"}])
    made = await ask("POST", path, 201, {"name": "a"} | CPUS)
    assert made == {"name": "a"} | CPUS | {"default": "2"}
    assert await ask("GET", f"{path}/a", 200) == made
    assert await ask("GET", f"{path}/hw_a?resource_type=T", 200) == made
    for query in ("a?resource_type=T", "a?resource_type=bare", "hw_a?resource_type=odd"):
        await ask("GET", f"{path}/{query}", 404)
    await ask("POST", path, 409, {"name": "a"} | CPUS)
    await ask("POST", path, 201, {"name": "b"} | CPUS)
    await ask("PUT", f"{path}/a", 409, {"name": "b"} | CPUS)
    await ask("PUT", f"{path}/a", 200, {"name": "c", "title": "C", "type": "string"})
    assert list((await ask("GET", path, 200))["properties"]) == ["c", "b"]
    for method in ("GET", "DELETE"):
        assert (await ask(method, f"{path}/a", 404))["message"] == "Could not find property a"
    await ask("PUT", f"{path}/a", 404, {"name": "a"} | CPUS)
    await ask("DELETE", path, 204)
    assert (await ask("GET", path, 200)) == {"properties": {}}


async def test_tags(app: ImageApp) -> None:
    ask, path = Speaker(app), f"{BASE}/NS/tags"
    await make(ask)

    async def names(query: str = "") -> list[str]:
        return [each["name"] for each in (await ask("GET", path + query, 200))["tags"]]

    assert (await ask("POST", f"{path}/old", 201))["name"] == "old"
    assert await ask("POST", path, 201, {"tags": [{"name": "b"}, {"name": "a"}]}) == {
        "tags": [{"name": "b"}, {"name": "a"}]
    }
    assert await names() == ["a", "b"], "they take the place of those there were"
    await ask("POST", path, 201, {"tags": [{"name": "c"}]}, **{"X-Openstack-Append": "True"})
    assert await names("?sort_key=name&sort_dir=asc") == ["a", "b", "c"]
    assert await names("?limit=1") == ["c"]
    assert await names("?limit=5&marker=c") == ["a", "b"]
    await ask("GET", f"{path}?marker=z", 404)
    said = await ask("POST", f"{path}/A", 409)
    assert said["message"].endswith("(Please note that metadata tag names are case insensitive).")
    await ask("POST", path, 409, {"tags": [{"name": "C"}]}, **{"X-Openstack-Append": "True"})
    await ask("POST", path, 201, {"tags": []})
    assert len(await names()) == 3
    await ask("PUT", f"{path}/a", 409, {"name": "B"})
    assert (await ask("PUT", f"{path}/a", 200, {"name": "A"}))["name"] == "A"
    assert (await ask("GET", f"{path}/A", 200))["name"] == "A"
    await ask("DELETE", f"{path}/a", 404)
    await ask("DELETE", f"{path}/A", 204)
    await ask("DELETE", path, 204)
    assert await names() == []


async def test_resource_types(app: ImageApp) -> None:
    ask, path = Speaker(app), f"{BASE}/NS/resource_types"
    types = (await ask("GET", "/v2/metadefs/resource_types", 200))["resource_types"]
    assert "OS::Nova::Server" in {each["name"] for each in types}
    await make(ask)
    made = await ask("POST", path, 201, {"name": "T", "prefix": "p_", "properties_target": "image"})
    assert (await ask("GET", path, 200)) == {"resource_type_associations": [made]}
    await ask("POST", path, 409, {"name": "T"})
    await ask("DELETE", f"{path}/T", 204)
    said = await ask("DELETE", f"{path}/T", 404)
    assert said["message"] == "Failed to find resource type T to delete"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {}),
        ("", {"namespace": ""}),
        ("", {"namespace": "x" * 81}),
        ("", {"namespace": "x\0"}),
        ("", {"namespace": "x", "odd": 1}),
        ("", {"namespace": "x", "visibility": "shared"}),
        ("", {"namespace": "x", "properties": {"p": {"title": "no type"}}}),
        ("", {"namespace": "x", "objects": [{"name": "o", "odd": 1}]}),
        ("", {"namespace": "x", "tags": [{}]}),
        ("", []),
        ("/NS/objects", {"description": "nameless"}),
        ("/NS/properties", CPUS),
        ("/NS/properties", {"name": "p", "title": "P", "type": "odd"}),
        ("/NS/tags", {"tags": [{"name": 1}]}),
        ("/NS/resource_types", {"prefix": "p"}),
    ],
)
async def test_what_does_not_match_the_schema_is_refused(app: ImageApp, path: str, body: Any) -> None:
    ask = Speaker(app)
    await make(ask)
    await ask("POST", BASE + path, 400, body)


async def test_readonly_fields_are_refused(app: ImageApp) -> None:
    ask = Speaker(app)
    said = await ask("POST", BASE, 403, {"namespace": "x", "created_at": "2020-01-01T00:00:00Z"})
    assert said["message"] == "Attribute 'created_at' is read-only."
    await make(ask)
    await ask("POST", f"{BASE}/NS/tags/{'t' * 81}", 400)


async def test_metadata_definitions_have_limits(app: ImageApp, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Speaker(app)
    await make(ask, "a")
    monkeypatch.setattr(metadef_store, "NAMESPACES_MAX", 1)
    await ask("POST", BASE, 413, {"namespace": "b"})
    monkeypatch.setattr(metadef_store, "RESOURCE_TYPES_MAX", 1)
    await ask("POST", f"{BASE}/a/resource_types", 201, {"name": "one"})
    await ask("POST", f"{BASE}/a/resource_types", 413, {"name": "two"})
    assert len((await ask("GET", f"{BASE}/a/resource_types", 200))["resource_type_associations"]) == 1
    monkeypatch.setattr(metadef_store, "CONTENTS_MAX_BYTES", 2000)
    await ask("POST", f"{BASE}/a/objects", 413, {"name": "o", "description": "x" * 2000})
    assert (await ask("GET", f"{BASE}/a/objects", 200))["objects"] == []
