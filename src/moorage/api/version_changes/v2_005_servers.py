"""2.5: Everybody may filter servers by IPv6 address."""

from moorage.api.microversions import VersionChange

IP6_FOR_ALL = (2, 5)

CHANGE = VersionChange(
    at=(2, 5),
    summary="Everybody may filter servers by IPv6 address.",
    behaviour=("IP6_FOR_ALL: the filter ip6 is not for administrators alone",),
)
