"""Messages about failures that owners of servers see name no host, cell, provider or physical network.

Faults, explanations and what an operation waits for are the public sentences of problems.  The sources are read: a sentence
that is put together of a name of the cloud's inside is refused here, unless only administrators hear it, or who hears it
said the name.  What operators read beside it is `Problem.named` and `private`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import moorage
from moorage.model import errors

SOURCE = Path(moorage.__file__).parent
TELL_OWNERS = ("agent", "api", "bus", "clients", "conductor", "drivers", "model", "operations", "saga", "store")
ADMINISTRATORS = (
    "api/compute/aggregates.py",
    "api/compute/hypervisors.py",
    "api/compute/os_hosts.py",
    "api/ext/",
    "api/host_view.py",
    "api/placement/",
    "bus/broker.py",
    "model/fleet.py",
    "operations/cell_drain",
    "operations/drain",
    "operations/records/aggregates.py",
    "operations/records/cells.py",
    "operations/records/hosts.py",
    "store/region/cell_drains.py",
    "store/region/drains.py",
    "store/region/placement/",
)
"""Whose callers may know hosts and cells: every rule there is for administrators, or for services."""
SAID_BY_THE_ASKER = {
    "clients/network/nic_validation.py: Port {port} not usable: its dns_name {users_port.dns_name} is not the server's hostname {hostname}.",
    "operations/boot/boot_checks.py: Compute host {host} could not be found.",
    "operations/boot/boot_checks.py: Compute host {node} could not be found.",
    "operations/steps/other_cells.py: Compute host {host} could not be found in the server's cell: it is in another one, and this move may not leave it.",
    "operations/evacuate/accept_evacuate.py: Compute host {host} not found.",
    "operations/live_migrate/accept_live_migrate.py: Compute host {host} cannot be reached: its cell is not linked with the server's.",
    "operations/live_migrate/accept_live_migrate.py: Unable to migrate instance ({server.id}) to current host ({wish.host}).",
    "operations/steps/fencing.py: Compute service of {host.name} is still in use.",
    "operations/steps/other_cells.py: Compute host {host} could not be found.",
    "operations/shelve/accept_unshelve.py: Compute host {wish.host} could not be found.",
    'operations/shelve/accept_unshelve.py: Host "{wish.host}" is not in the availability zone "{zone}".',
}
"""Refused at once, before anything is begun, to who said the name."""
INSIDE = re.compile(
    r"host|cell|node|provider|physical|physnet|segment|conductor|\bagent|old\.name|claim\.name|database", re.IGNORECASE
)
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.Problem)}
KINDS |= {"BindRefused"}


def sentences() -> Iterator[tuple[str, str]]:
    """File → each public sentence that is put together there."""
    for room in TELL_OWNERS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            here, tree = str(path.relative_to(SOURCE)), ast.parse(path.read_text())
            kept: dict[str, list[ast.JoinedStr]] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr):
                    for target in node.targets:
                        kept.setdefault(ast.unparse(target), []).append(node.value)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                first = node.args[0]
                if name in KINDS:
                    for told in [first] if isinstance(first, ast.JoinedStr) else kept.get(ast.unparse(first), []):
                        yield here, ast.unparse(told)


def names_inside(sentence: str) -> list[str]:
    joined = ast.parse(sentence, mode="eval").body
    assert isinstance(joined, ast.JoinedStr)
    listed = [ast.unparse(each.value) for each in joined.values if isinstance(each, ast.FormattedValue)]
    return [each for each in listed if INSIDE.search(each)]


def as_written(sentence: str) -> str:
    return sentence.removeprefix("f")[1:-1]


def test_public_messages_contain_no_internal_names() -> None:
    every = list(sentences())
    assert len(every) > 200, "the sources are read"
    naming = {
        f"{path}: {as_written(sentence)}"
        for path, sentence in every
        if not path.startswith(ADMINISTRATORS) and names_inside(sentence)
    }
    assert naming - SAID_BY_THE_ASKER == set()
    assert SAID_BY_THE_ASKER - naming == set(), "is there no more"


def test_the_check_finds_an_internal_name() -> None:
    assert names_inside("f'port {port} could not be bound on host {host}'") == ["host"]
    assert names_inside("f'the server is not in {claim.cell}'") == ["claim.cell"]
    assert names_inside("f'port {port.id} could not be bound'") == []
