"""SAGAS: name/version → saga; what a conductor of this release can tell, and what the proof breaks."""

from collections.abc import Mapping
from typing import Any

from moorage.operations.attach_interface import ATTACH_INTERFACE
from moorage.operations.boot import BOOT
from moorage.operations.delete import DELETE
from moorage.operations.detach_interface import DETACH_INTERFACE
from moorage.operations.power import POWER
from moorage.saga import Saga

SAGAS: Mapping[str, Saga[Any, Any]] = {
    saga.name: saga for saga in (BOOT, DELETE, POWER, ATTACH_INTERFACE, DETACH_INTERFACE)
}
