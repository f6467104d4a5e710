"""2.47: A server shows its flavor as it was, not a link to what the flavor is now."""

from moorage.api.microversions import Json, VersionChange, rows_at


def a_link(body: Json) -> Json:
    for row in (*rows_at(body, "servers"), *rows_at(body, "server")):
        if "past_flavor" in row:
            row["flavor"] = row.pop("past_flavor")
    return body


CHANGE = VersionChange(
    at=(2, 47),
    summary="A server shows its flavor as it was, not a link to what the flavor is now.",
    retires={
        "GET /servers/detail": {"servers": ("past_flavor",)},
        "GET /servers/{id}": {"server": ("past_flavor",)},
        "PUT /servers/{id}": {"server": ("past_flavor",)},
        "POST /servers/{id}/action:rebuild": {"server": ("past_flavor",)},
    },
    response={
        "GET /servers/detail": a_link,
        "GET /servers/{id}": a_link,
        "PUT /servers/{id}": a_link,
        "POST /servers/{id}/action:rebuild": a_link,
    },
)
