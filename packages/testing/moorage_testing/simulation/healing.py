"""The end of all faults: everything is well from then on."""

import msgspec

from moorage_testing.simulation.cloud import Role, SimulatedCloud
from moorage_testing.simulation.orders import set_forced_down
from moorage_testing.simulation.roles import USUAL, AgentRole


def heal(cloud: SimulatedCloud) -> None:
    """Everything is well from now on; what is down is started."""
    for store in cloud.stores.values():
        store.heal()
    cloud.hub.heal()
    cloud.lost_answers.heal()
    for door in cloud.doors.values():
        door.heal()
    for role in cloud.roles.values():
        if isinstance(role, AgentRole):
            at_once = {"live_mib_per_s": 0.0, "live_dirty_mib_per_s": 0.0, "live_switch_s": 0.0}
            role.turn(msgspec.structs.replace(role.dials, verbs=USUAL, crash=(), **at_once))
        role.powerless = False
        _up(role)


def _up(role: Role) -> None:
    role.wanted = True
    role.start()


async def let_debtors_be_up(cloud: SimulatedCloud) -> None:
    """A host that owes something pays it when nobody forces it down any more: an administrator who sees that takes it back."""
    owing = "SELECT DISTINCT host FROM debts ORDER BY host"
    for (host,) in cloud.stores["region"].raw.execute(owing).fetchall():
        setting = cloud.watch.book.setting(host, "forced_down")
        if (setting.value or setting.unsure) and not cloud.watch.unended():
            await set_forced_down(cloud, host, on=False)
