"""A guest's power state, from libvirt's, and its end."""

from typing import Any

from moorage.drivers.libvirt.library import library
from moorage.model.guest import PowerState


def power_of(domain: Any) -> PowerState:
    state, reason = domain.state()
    return power_from(domain, state, reason)


def go_on(domain: Any) -> None:
    """Let a guest run that stands still: it was paused, or its own system sleeps (ACPI S3)."""
    if domain.state()[0] == library().VIR_DOMAIN_PMSUSPENDED:
        domain.pMWakeup(0)
    else:
        domain.resume()


def power_from(domain: Any, state: int, reason: int) -> PowerState:
    """Convert libvirt's state into a PowerState; a guest that is off and saved to disk is suspended."""
    libvirt = library()
    if state in {libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED, libvirt.VIR_DOMAIN_SHUTDOWN}:
        return PowerState.RUNNING
    if state in {libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PMSUSPENDED}:
        return PowerState.PAUSED
    if state == libvirt.VIR_DOMAIN_CRASHED:
        return PowerState.CRASHED
    if state != libvirt.VIR_DOMAIN_SHUTOFF:
        return PowerState.NOSTATE
    if domain.hasManagedSaveImage(0):
        return PowerState.SUSPENDED
    return PowerState.CRASHED if reason == libvirt.VIR_DOMAIN_SHUTOFF_CRASHED else PowerState.SHUTDOWN


def switch_off(domain: Any) -> PowerState:
    """Also when it is off already; a saved state is dropped."""
    if domain.hasManagedSaveImage(0):
        domain.managedSaveRemove(0)
    if domain.isActive():
        try:
            domain.destroy()
        except library().libvirtError:
            if domain.isActive():
                raise
    return PowerState.SHUTDOWN
