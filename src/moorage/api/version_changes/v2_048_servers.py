"""2.48: the diagnostics of a server have one form, whatever its hypervisor."""

from moorage.api.microversions import VersionChange

FIXED_FORM = (2, 48)

CHANGE = VersionChange(
    at=FIXED_FORM,
    summary="Diagnostics of a server have a fixed form; before, whatever its hypervisor said.",
    behaviour=("FIXED_FORM: the older answer is made of the newer one.",),
)
