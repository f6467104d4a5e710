"""What becomes of each name that a request may have: extra specs, image properties, hints, fields of block devices, vNIC types, quotas.

`tests/pure/test_request_names.py` compares it with the names that Nova publishes (`tests/golden/nova_names.json`): a name without a row
fails.  A name that a driver is given and that has no row with `MADE` there is refused (`drivers/libvirt/machine_features.py`).
"""

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
]
