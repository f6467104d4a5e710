"""2.75: clean-ups. Lists refuse query parameters they do not know (in the routes' `Params`); values settle."""

from moorage.api.microversions import Json, VersionChange, rows_at


def no_swap_is_empty_text(body: Json) -> Json:
    """A flavor without swap said `""`, not 0."""
    for place in ("flavor", "flavors"):
        for row in rows_at(body, place):
            if row.get("swap") == 0:
                row["swap"] = ""
    return body


def no_empty_lists_of_servers(body: Json) -> Json:
    """A hypervisor without servers had no field for them."""
    for place in ("hypervisor", "hypervisors"):
        for row in rows_at(body, place):
            if row.get("servers") == []:
                del row["servers"]
    return body


CHANGE = VersionChange(
    at=(2, 75),
    summary="Unknown query parameters of lists are refused; a flavor without swap says 0; no servers are an empty list.",
    response={
        "GET /os-hypervisors": no_empty_lists_of_servers,
        "GET /os-hypervisors/detail": no_empty_lists_of_servers,
        "GET /os-hypervisors/{id}": no_empty_lists_of_servers,
        "GET /os-hypervisors/{id}/servers": no_empty_lists_of_servers,
        "GET /flavors/detail": no_swap_is_empty_text,
        "GET /flavors/{id}": no_swap_is_empty_text,
        "POST /flavors": no_swap_is_empty_text,
        "PUT /flavors/{id}": no_swap_is_empty_text,
    },
)
