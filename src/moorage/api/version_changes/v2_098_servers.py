"""2.98: A server shows the properties its image had."""

from moorage.api.microversions import Json, VersionChange, rows_at


def without_properties(body: Json) -> Json:
    for row in (*rows_at(body, "servers"), *rows_at(body, "server")):
        if isinstance(row.get("image"), dict):
            row["image"].pop("properties", None)
    return body


CHANGE = VersionChange(
    at=(2, 98),
    summary="A server shows the properties its image had.",
    response={
        "GET /servers/detail": without_properties,
        "GET /servers/{id}": without_properties,
        "PUT /servers/{id}": without_properties,
        "POST /servers/{id}/action:rebuild": without_properties,
    },
)
