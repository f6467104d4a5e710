"""Images that an image's properties name: each is looked at as the caller, like the image itself.

A property is its image's owner's to write, and hosts read what an order names without asking who may see it. So an id in
a property reaches a host only if the caller sees that image; else the request is refused with Nova's sentence for it.
Volumes, snapshots and images in `block_device_mapping` become devices of the request and are read as such
(`operations/boot/boot_devices.py`).
"""

from collections.abc import Collection, Mapping

from moorage.model.errors import Invalid, NotFound
from moorage.operations.context import SagaContext

NAMED = ("kernel_id", "ramdisk_id")
"""Properties whose value is the id of another image."""
NO_KERNEL = "nokernel"
"""As `kernel_id`: neither a kernel nor a RAM disk is used, as in Nova."""
FOR_EVERYBODY = frozenset({"public", "community"})


async def checked_properties(
    context: SagaContext, token: str | None, properties: Mapping[str, str], *, lend_only_to: Collection[str] = ()
) -> dict[str, str]:
    """Return the properties, of those that name an image only the ones whose image the caller sees.

    A caller who works on another project's server may see more than that project, and lends it nothing: `lend_only_to` are
    then the projects of which the named image has to be, unless it is for everybody; empty: the caller's server is its own.
    `token` None: our own account, for an image that an operator configured.

    Raises Invalid for an image that the caller, or who gets its data, does not see.
    """
    kept = {name: value for name, value in properties.items() if name not in NAMED}
    if properties.get("kernel_id") == NO_KERNEL:
        return kept
    for name in NAMED:
        if named := properties.get(name):
            try:
                image = await context.images.show(named, token)
            except NotFound as missing:
                raise Invalid(_unknown(named)) from missing
            if lend_only_to and image.owner not in lend_only_to and image.visibility not in FOR_EVERYBODY:
                raise Invalid(_unknown(named), private=f"the server's project does not own {name} {named}")
            if image.status != "active":
                raise Invalid(f"Image {named} is not active.")
            kept[name] = named
    return kept


def kernel_of(properties: Mapping[str, str]) -> tuple[str, str]:
    """Return the images of kernel and RAM disk that a guest of such an image boots; empty: from its disk."""
    if properties.get("kernel_id") == NO_KERNEL:
        return "", ""
    return properties.get("kernel_id") or "", properties.get("ramdisk_id") or ""


def _unknown(image: str) -> str:
    return f"Image {image} could not be found."
