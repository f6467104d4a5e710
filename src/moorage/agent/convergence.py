"""Plans what a host must destroy, remember, forget and start after a time without contact, so that the right guests run.

The function is pure: its input is the host's state and the cell's answer.  It destroys no guest that the answer did not cover: a guest
that the cell does not know is shown in the report, and a later command with a turn decides.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moorage.bus.host_messages import ServerTurn
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.guest import OFF, PowerState
from moorage.model.ids import ServerId


@dataclass(frozen=True)
class ConvergencePlan:
    """The plan, executed in this order: destroy, know, forget, then report, then start.

    A turn is recorded after the destroy and not before: if the agent is killed in between, it still finds the guest outdated, and destroys
    it.  (If the known turn is an undo, there should be no guest either: an existing one was made by a driver that finished late.)
    No command can come in between, because none is executed before the host is accepted, and later they share the server's queue.
    """

    know: tuple[tuple[ServerId, FencingToken], ...] = ()
    """Turns higher than the recorded ones: older commands come too late."""
    destroy: tuple[ServerId, ...] = ()
    forget: tuple[ServerId, ...] = ()
    start: tuple[ServerId, ...] = ()


def converge(
    guests: Mapping[ServerId, PowerState],
    turns: Mapping[ServerId, FencingToken],
    was_running: Collection[ServerId],
    server_turns: Iterable[ServerTurn],
) -> ConvergencePlan:
    """Build the plan. `turns` and `was_running` are from the agent's journal, `server_turns` is from the cell."""
    know: list[tuple[ServerId, FencingToken]] = []
    destroy: list[ServerId] = []
    forget: list[ServerId] = []
    start: list[ServerId] = []
    for each in server_turns:
        server, ours = each.server, turns.get(each.server)
        if each.gone:
            forget.append(server)
            if server in guests:
                destroy.append(server)
            continue
        newer = each.turn is not None and (ours is None or each.turn > ours)
        made_since = each.turn is not None and each.turn == ours and each.turn.phase == UNDO
        if each.turn is not None and newer:
            know.append((server, each.turn))
        if each.here:
            if each.running and server in was_running and guests.get(server) in OFF:
                start.append(server)
        elif (newer or made_since) and server in guests:
            destroy.append(server)
    return ConvergencePlan(tuple(know), tuple(destroy), tuple(forget), tuple(start))
