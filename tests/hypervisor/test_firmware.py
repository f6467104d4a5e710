"""Guests that boot by UEFI, with Secure Boot and without, and where the variables of their firmware go."""

from pathlib import Path

import pytest
from tests.hypervisor.test_live import a_host, daemons, sent, when
from tests.helpers.libvirt_host import UEFI_DISK, ImageFiles, a_driver, a_spec, says

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.live_migration import LiveState
from moorage.model.rescue import RescueSpec
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor

ONE = ServerId("aaaaaaaa-0000-4000-8000-000000000001")
RAM_MIB = 256
