"""Reads that agents of an earlier release do not know: the caller gets `not_supported` for each of them.

The first release knew one read, the console's; any other it takes for a command, and one without a turn for an old one.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.agent_host import HOST, SERVER, command_context, guest, place

from moorage.agent import agent, command_runner
from moorage.agent.commands import VERBS
from moorage.agent.legacy_ports import MAKES_PORTS
from moorage.bus import subjects
from moorage.bus.command_sender import CommandSender
from moorage.bus.memory import MemoryBus
from moorage.bus.verbs import READS, Verb
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage_testing.legacy_hosts import FIRST_READS, FIRST_VERBS

UNKNOWN = sorted(READS - FIRST_READS)
STRANGER = ServerId("99999999-0000-4000-8000-000000000000")


class Anything(msgspec.Struct):
    """Read from any answer."""


@pytest.mark.parametrize("verb", UNKNOWN)
@pytest.mark.parametrize("server", [SERVER, STRANGER])
async def test_a_read_unknown_to_an_old_agent_is_not_supported(
    verb: Verb, server: ServerId, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "READS", FIRST_READS)
    monkeypatch.setattr(command_runner, "READS", FIRST_READS)
    to_host = staticmethod(lambda address, _: subjects.to_host(address.cell, address.host))
    monkeypatch.setattr(CommandSender, "_subject_of", to_host)  # it does not say that it hears questions elsewhere
    monkeypatch.setattr(agent, "VERBS", {name: do for name, do in VERBS.items() if name in FIRST_VERBS})
    async with place(MemoryBus(), tmp_path) as at:
        at.host.agent.level = MAKES_PORTS
        await at.caller.start_guest(HOST, command_context(), guest())
        with pytest.raises(HostFailed) as refused:
            await at.caller.ask(HOST, server, verb, None, Anything)
        assert refused.value.code == "not_supported"
        assert "cannot do that" in refused.value.public or "no verb" in refused.value.private
        if verb is Verb.VOLUME_CONNECTOR:
            with pytest.raises(HostFailed, match="cannot do that"):
                await at.caller.volume_connector(HOST, SERVER)
        assert (await at.caller.console_output(HOST, SERVER, 1)).endswith("login: ")
        assert await at.caller.power_off(HOST, command_context(2), SERVER) is PowerState.SHUTDOWN


async def test_a_command_with_an_old_token_is_still_refused_as_old(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(3), guest())
        with pytest.raises(HostFailed) as refused:
            await at.caller.power_off(HOST, command_context(2), SERVER)
        assert refused.value.code == "turn_is_past"


def test_every_read_and_verb_of_the_first_release_is_supported() -> None:
    known: Any = set(VERBS)
    assert known >= FIRST_VERBS
    assert READS >= FIRST_READS
