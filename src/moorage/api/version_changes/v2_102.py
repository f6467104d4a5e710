"""2.102: flavors lose `rxtx_factor` and `disabled`, and lists can be filtered by name.

Every GET refuses query parameters it does not know from here on: the default of a route's `Params`.
"""

from moorage.api.microversions import VersionChange

GONE = ("rxtx_factor", "OS-FLV-DISABLED:disabled")

CHANGE = VersionChange(
    at=(2, 102),
    summary="Flavors have no `rxtx_factor` and no `disabled`; `GET /flavors?name=`; unknown query parameters are refused.",
    refuses_from={"POST /flavors": {"flavor": ("rxtx_factor",)}},
    retires={
        "GET /flavors/detail": {"flavors": GONE},
        "GET /flavors/{id}": {"flavor": GONE},
        "POST /flavors": {"flavor": GONE},
        "PUT /flavors/{id}": {"flavor": GONE},
    },
)
