"""Answers requests of other hosts: files of guests, and questions about arriving guests."""

import asyncio
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.carrier import CarrierRequest
from moorage.drivers.libvirt.live import Live
from moorage.drivers.libvirt.live_arrivals import BESIDE, LIVE_FILE, LIVE_PLAN, LIVE_STATE, Offer
from moorage.drivers.libvirt.moves import BEGIN, END, FILE, MovesPart
from moorage.drivers.libvirt.records import GuestRecord, checked
from moorage.model.errors import HostFailed
from moorage.model.ids import ServerId


class Arriving(MovesPart, Live):
    """The part of `LibvirtDriver` that answers other hosts (see `carrier.Receiving`)."""

    async def file_for(self, request: CarrierRequest) -> Path:
        """Return the path for a file that another host sends.

        Raises HostFailed when the host does not expect such a file.
        """
        server = ServerId(checked(ServerId(request.server)))
        if request.verb == FILE:
            return self.arriving_file(server, request.move, request.name)
        if request.verb == LIVE_FILE and request.name in BESIDE:
            return self._records.place(self.awaited(server, request.move)) / request.name
        raise HostFailed("the host does not take such a file", private=request.name, code="garbled")

    async def answer(self, request: CarrierRequest) -> bytes:
        """Answer a request of another host. Raises HostFailed for an unknown request."""
        server = ServerId(checked(ServerId(request.server)))
        body = bytes(request.body)
        if request.verb == BEGIN:
            await asyncio.to_thread(self.begin_arrival, server, request.move)
            return b"true"
        if request.verb == END:
            self.end_arrival(server, request.move, msgspec.json.decode(body, type=GuestRecord))
            return b"true"
        if request.verb == LIVE_PLAN:
            offer = msgspec.json.decode(body, type=Offer)
            return msgspec.json.encode(await self.plan_live(server, request.move, offer))
        if request.verb == LIVE_STATE:
            return msgspec.json.encode(await self.live_status(server, request.move))
        raise HostFailed("the host does not understand another one", private=request.verb, code="garbled")
