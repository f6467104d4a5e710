"""The subjects to which each role may publish and subscribe.  Everything that is not listed is denied.

Orders to hosts come from conductors alone.  API and console processes only ask hosts, on subjects that name the question
(`subjects.ask_host`); an agent does nothing else there (`agent/host_questions.py`).

There are no inboxes: no request on the bus uses a reply subject of the broker, so no role may subscribe to one, and no process
can read another's answers there.  An agent's key binds it to its name and cell: the subjects on which it publishes contain both
(`subjects`), and it receives only messages to itself.
"""

from collections.abc import Collection, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from moorage.bus import subjects
from moorage.bus.subjects import ROOT, token
from moorage.bus.verbs import OF_APIS, OF_CONSOLES, Verb
from moorage.model.errors import Invalid
from moorage.model.ids import CellId

Role: TypeAlias = Literal["agent", "conductor", "api", "console", "listener"]
ROLES: tuple[Role, ...] = get_args(Role)
"""`listener`: a consumer of notifications on our bus (`[notifications] bus`).  The roles `metadata`, `embedded` and `placement` need no bus."""


class Permissions(msgspec.Struct, frozen=True):
    """Patterns in the broker's form."""

    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


def of_agent(cell: str, host: str) -> Permissions:
    """Return the permissions of one host: it publishes everything under its own name, receives what is sent to it, and
    learns nothing about other hosts.

    Raises Invalid when cell or host is empty.
    """
    if not cell or not host:
        raise Invalid("an agent's permissions are those of one host in one cell: name both")
    place = CellId(cell)
    subscribed = subjects.to_host(place, host), subjects.questions_to(place, host)
    return Permissions((subjects.from_host(place, host, ">"),), subscribed)


def of_process(role: str, cells: Sequence[str] = (), *, earlier_agents: bool = False) -> Permissions:
    """Return the permissions of a role's processes for these cells; none: for all cells. Raises Invalid for an unknown role.

    `earlier_agents`: while there are agents that do not know questions yet, API and console processes put theirs to those where
    orders are given; so they may then give orders, too.
    """
    places = [token(cell) for cell in dict.fromkeys(cells)] or ["*"]
    orders = tuple(f"{ROOT}.cell.{cell}.host.*" for cell in places)
    while_earlier = orders if earlier_agents else ()
    answers = _of_hosts(places, "result.*", subjects.HEARTBEAT)
    notifications = f"{ROOT}.notification.>"
    hints = f"{ROOT}.hint.conductor.*", subjects.EVENTS
    match role:
        case "conductor":
            return Permissions(
                (*orders, *(f"{ROOT}.cell.{cell}.ask.>" for cell in places), *hints, notifications),
                (*answers, *_of_hosts(places, subjects.REPORT, subjects.RETURNED), *hints),
            )
        case "api":
            return Permissions((*_questions(places, OF_APIS), *while_earlier, *hints, notifications), answers)
        case "console":
            return Permissions((*_questions(places, OF_CONSOLES), *while_earlier), answers)
        case "listener":
            return Permissions((), (notifications,))
        case "agent":
            raise Invalid("an agent's permissions are those of one host in one cell: name both")
        case _:
            raise Invalid(f"there is no role {role!r} on the bus: {', '.join(ROLES)}")


def _questions(places: Sequence[str], verbs: Collection[Verb]) -> tuple[str, ...]:
    return tuple(f"{ROOT}.cell.{cell}.ask.*.{token(verb)}" for cell in places for verb in sorted(verbs))


def _of_hosts(places: Sequence[str], *kinds: str) -> tuple[str, ...]:
    return tuple(f"{ROOT}.cell.{cell}.from.*.{kind}" for cell in places for kind in kinds)
