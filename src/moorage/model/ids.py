"""Ids: strings with a name, so that one kind is not taken for another.  UUIDs are in canonical form, with dashes."""

from typing import NewType

ServerId = NewType("ServerId", str)
OperationId = NewType("OperationId", str)
HostId = NewType("HostId", str)  # the host's root resource provider, a UUID; the name people know is `host` (str)
CellId = NewType("CellId", str)
ProjectId = NewType("ProjectId", str)
UserId = NewType("UserId", str)
FlavorId = NewType("FlavorId", str)
ImageId = NewType("ImageId", str)
NetworkId = NewType("NetworkId", str)
SubnetId = NewType("SubnetId", str)
SegmentId = NewType("SegmentId", str)
PortId = NewType("PortId", str)
ProviderId = NewType("ProviderId", str)
ConsumerId = NewType("ConsumerId", str)
ConductorId = NewType("ConductorId", str)
