"""2.37: Networks must be said: a list, `auto` or `none`."""

from moorage.api.microversions import Json, VersionChange, rows_at
from moorage.model.errors import Invalid

NETWORKS_REQUIRED = (2, 37)
NIC_TAGS_GONE = (2, 37)


def only_a_list(body: Json) -> None:
    """Refuse networks that are not a list, as old versions do. Raises Invalid."""
    for server in rows_at(body, "server"):
        if isinstance(server.get("networks"), str):
            raise Invalid(
                f"Invalid input for field/attribute networks. Value: {server['networks']}. "
                f"'{server['networks']}' is not of type 'array'"
            )


CHANGE = VersionChange(
    at=(2, 37),
    summary="Networks must be said: a list, `auto` or `none`.",
    loosens={"POST /servers": only_a_list},
    behaviour=(
        "NETWORKS_REQUIRED: a server without `networks` is refused",
        "NIC_TAGS_GONE: tags of cards are refused until 2.42",
    ),
)
