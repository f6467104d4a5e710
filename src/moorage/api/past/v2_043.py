"""2.43: hosts are looked at as hypervisors and services."""

from moorage.api import gone
from moorage.api.microversions import Change

CHANGE = Change(at=(2, 43), says="`/os-hosts` is gone.", ends=gone.keys(gone.ENDED_BY_43))
