"""2.31: console tokens of every type can be shown."""

from moorage.api.microversions import VersionChange

EVERY_TYPE = (2, 31)

CHANGE = VersionChange(
    at=(2, 31),
    summary="`/os-console-auth-tokens/{id}` tells of every type of console; before, of RDP alone, which is gone.",
    behaviour=("EVERY_TYPE: below it the call is answered 400.",),
)
