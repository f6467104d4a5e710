"""Packages of this repository that only some commands need."""

from importlib.util import find_spec

from moorage.model.errors import Invalid

EMBEDDED = "moorage_embedded"


def require_embedded() -> None:
    """Check that the package with the embedded services is installed. Raises Invalid when it is not."""
    if find_spec(EMBEDDED) is None:
        raise Invalid(
            "this command runs the embedded identity, image, network and volume services, and the package moorage-embedded is not "
            "installed: install it (`make up` does; by hand: `pip install ./packages/embedded` in the repository), or run the roles "
            "api, conductor and agent beside real services"
        )
