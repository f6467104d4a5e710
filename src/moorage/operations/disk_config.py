"""`OS-DCF:diskConfig`: whether the guest's partition grows to the size of its disk (AUTO) or stays as the image has it
(MANUAL).
"""

from moorage.model.errors import Invalid
from moorage.model.image import Image

PROPERTY = "auto_disk_config"
TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})


def disk_config_of(input: str | None, image: Image | None) -> str:
    """Return the requested value, or the image's, or MANUAL. Raises Invalid when the image forbids AUTO."""
    setting = "" if image is None else image.properties.get(PROPERTY, "").strip().lower()
    if input == "AUTO" and setting == "disabled":
        raise Invalid(f"Requested image {image.id if image else ''} has automatic disk resize disabled.")
    return input or ("AUTO" if setting in TRUE else "MANUAL")
