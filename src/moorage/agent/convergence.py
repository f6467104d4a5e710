"""After a silence: what must be destroyed, remembered, forgotten and started, so that what runs here is what should.

Pure: what is here and what the cell says come in, a plan goes out.  Nothing is destroyed that the cell did not speak of: a guest that
the cell does not know is shown in the report, and somebody decides with a turn.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moorage.bus.host_messages import ServerTurn
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.guest import OFF, PowerState
from moorage.model.ids import ServerId


@dataclass(frozen=True)
class ConvergencePlan:
    """In this order: destroy, know, forget, then report, then start.

    The turn is learnt after its destroy, and not before: an agent killed between the two finds the guest older still, and destroys it.
    (A turn that is known, and takes something back, has no guest either: one that is there was made by a driver that was late.)
    No command can slip between them, for none is obeyed before the agent is home, and later they share the server's lane.
    """

    know: tuple[tuple[ServerId, FencingToken], ...] = ()
    """Turns higher than ours: a command that is older than these comes too late."""
    destroy: tuple[ServerId, ...] = ()
    forget: tuple[ServerId, ...] = ()
    start: tuple[ServerId, ...] = ()


def converge(
    guests: Mapping[ServerId, PowerState],
    turns: Mapping[ServerId, FencingToken],
    was_running: Collection[ServerId],
    told: Iterable[ServerTurn],
) -> ConvergencePlan:
    """`turns` and `was_running` are from our journal, `told` from the cell."""
    know: list[tuple[ServerId, FencingToken]] = []
    destroy: list[ServerId] = []
    forget: list[ServerId] = []
    start: list[ServerId] = []
    for each in told:
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
