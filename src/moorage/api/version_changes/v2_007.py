"""2.7: a project cannot be given access to a flavor that everybody may use."""

from moorage.api.microversions import VersionChange

PUBLIC_FLAVORS_REFUSED = (2, 7)

CHANGE = VersionChange(
    at=(2, 7),
    summary="Adding a project to a public flavor is refused with 409.",
    behaviour=("PUBLIC_FLAVORS_REFUSED: addTenantAccess looks whether the flavor is public.",),
)
