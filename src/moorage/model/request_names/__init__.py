"""What becomes of each name that a request may have: extra specs, image properties, hints, fields of block devices, vNIC types, quotas.

`tests/pure/test_request_names.py` compares it with the names that Nova publishes (`tests/golden/nova_names.json`): a name without a row
fails, and so does one of a flavor or an image that no host has and that the libvirt driver does not refuse by itself: a site may tell
Placement that a host has it.  What the table says is done where each row points to.  A host refuses names of flavors for machines that have
no row in its own release: the API may be newer, and may have accepted them.
"""

from collections.abc import Mapping

from moorage.model.request_names.extra_specs import EXTRA_SPECS
from moorage.model.request_names.fields import BLOCK_DEVICE, HINTS, QUOTAS, VNIC_TYPES
from moorage.model.request_names.handling import Fate, Handling, handling_of
from moorage.model.request_names.image_properties import IMAGE_PROPERTIES

__all__ = [
    "BLOCK_DEVICE",
    "EXTRA_SPECS",
    "HINTS",
    "IMAGE_PROPERTIES",
    "QUOTAS",
    "VNIC_TYPES",
    "Fate",
    "Handling",
    "handling_of",
    "unknown_names",
]
OF_MACHINES = ("hw:", "hw_rng:", "hw_video:", "quota:", "os:")
"""What extra specs begin with that ask for something in the guest's machine."""


def unknown_names(specs: Mapping[str, str]) -> list[str]:
    """Return the names of a flavor that ask for something in the guest's machine, and have no row.

    The API refuses names of flavors that it does not know, so a newer release has accepted them. Properties of images are
    anybody's: one that no row has asks for nothing, as in Nova.
    """
    return sorted(each for each in specs if each.startswith(OF_MACHINES) and handling_of(each, EXTRA_SPECS) is None)
