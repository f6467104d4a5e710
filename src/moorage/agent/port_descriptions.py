"""How ports are to be wired: passed on to a driver that does it."""

from moorage.bus.description_messages import PortDescriptions
from moorage.drivers.driver import Driver
from moorage.drivers.port_descriptions import PortDescribed


def describe_ports(driver: Driver, message: PortDescriptions) -> None:
    """A driver that wires nothing by descriptions leaves it lying."""
    if isinstance(driver, PortDescribed):
        driver.describe_ports(message.ports, message.sets, message.present, message.version)


def described_by(driver: Driver) -> str:
    """For heartbeats; empty: the driver takes none."""
    return driver.described() if isinstance(driver, PortDescribed) else ""
