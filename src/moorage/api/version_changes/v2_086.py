"""2.86: extra specs with known names are checked."""

from moorage.api.microversions import VersionChange

KNOWN_SPECS_CHECKED = (2, 86)

CHANGE = VersionChange(
    at=(2, 86),
    summary="Extra specs in known namespaces must have a known name and a possible value.",
    behaviour=("KNOWN_SPECS_CHECKED: creating and updating extra specs looks at names and values.",),
)
