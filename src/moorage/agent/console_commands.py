"""Verbs of consoles: the address of one."""

from moorage.agent.command_context import Answer, payload_of, power_of
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import GetConsole
from moorage.drivers.consoles import ConsoleGiver
from moorage.drivers.driver import Driver


async def get_console(driver: Driver, command: Command) -> Answer:
    giver = power_of(driver, ConsoleGiver)  # type: ignore[type-abstract]
    return await giver.get_console(command.server, payload_of(command, GetConsole).kind), None
