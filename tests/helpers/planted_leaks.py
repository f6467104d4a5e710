"""Leaks, planted in a small region: one function for each kind of leak. This module has all of them in one table."""

from tests.helpers import planted_device_leaks, planted_record_leaks, planted_service_leaks, planted_unknown_owners
from tests.helpers.leak_planting import PLANTS

__all__ = ["PLANTS", "planted_device_leaks", "planted_record_leaks", "planted_service_leaks", "planted_unknown_owners"]
