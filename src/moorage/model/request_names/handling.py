"""What may become of a name."""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Fate(StrEnum):
    """What one driver, or the cloud for it, does with a name."""

    MADE = "made"
    """The guest has it; a simulated guest has it in its record, where it can be read."""
    API = "api"
    """The API and its operations do it, whatever the driver."""
    SCHEDULER = "scheduler"
    """It chooses hosts; nothing in the guest follows from it."""
    NO_HOST = "no_host"
    """The scheduler asks for a resource class or a trait that no host has, or rejects every host, and names it."""
    REFUSED = "refused"
    """400 at the API."""
    DRIVER_REFUSES = "driver_refuses"
    """The host refuses the guest with `not_supported`."""
    NO_EFFECT = "no_effect"
    """Accepted without effect, as by Nova with its defaults or by Nova's libvirt driver."""


class Handling(msgspec.Struct, frozen=True):
    """What becomes of a name on each driver, and where."""

    simulated: Fate
    libvirt: Fate
    where: str
    """The module that does it, or why nothing is done."""


def alike(fate: Fate, where: str, *names: str) -> dict[str, Handling]:
    """The same on each driver, for all these names."""
    return {name: Handling(fate, fate, where) for name in names}


def each(simulated: Fate, libvirt: Fate, where: str, *names: str) -> dict[str, Handling]:
    return {name: Handling(simulated, libvirt, where) for name in names}


def handling_of(name: str, table: Mapping[str, Handling]) -> Handling | None:
    """The row of a name; `{…}` in a row's name stands for any text."""
    if (exact := table.get(name)) is not None:
        return exact
    for form, handling in table.items():
        if "{" in form:
            pattern = "".join(
                ".+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{\w+\})", form)
            )
            if re.fullmatch(pattern, name):
                return handling
    return None
