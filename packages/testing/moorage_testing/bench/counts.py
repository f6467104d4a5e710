"""What one boot asks of everybody: statements, commits, messages, calls (P1). Free of noise, so a broken budget fails."""

from moorage_testing.bench.clouds import BenchCloud, Spent
from moorage_testing.bench.table import BenchRow, Table, print_line

BOOTS = 40
STATEMENTS, COMMITS, MESSAGES, CALLS = 14, 5, 6, 2
BACKGROUND = ("reconciler", "hosts", "lease", "look", "adopt", "picture", "presence", "stores")
"""Labels of work that goes on without any boot: heartbeats, leases, rounds."""
BACKGROUND_MESSAGES = ("heartbeat", "report", "returned")
SELDOM = 0.25
"""Calls of a kind that are made less often per boot are those of rounds: the slower the machine, the more of them fall into a boot."""
EVENT = "external_event"
ORDER = ("accept", "claim_host", "record_server", "announce", "end")


async def count(table: Table, cloud: BenchCloud) -> None:
    """Boots one after the other, so that no commit is shared and each is seen whole."""
    spent = await cloud.boot(BOOTS, in_flight=1, one_by_one=True)
    strict = cloud.backing.kind == "postgresql"  # what the budget is for; SQLite's differ by what one statement can say
    statements, commits = per_boot(spent, "statements"), per_boot(spent, "commits")
    messages = {k: n for k, n in spent.counters["messages"].items() if k not in BACKGROUND_MESSAGES}
    event_rows(table, statements.pop(EVENT, 0.0), commits.pop(EVENT, 0.0), messages.pop("event", 0) / BOOTS, strict)
    calls = spent.counters["calls"]
    of_boots = {what: count for what, count in calls.items() if count >= SELDOM * BOOTS}
    network = sum(count for what, count in of_boots.items() if what.startswith("network:"))
    for name, value, budget in (
        ("SQL statements of one boot with one new port", sum(statements.values()), STATEMENTS),
        ("write commits", sum(commits.values()), COMMITS),
        ("bus messages", sum(messages.values()) / BOOTS, MESSAGES),
        ("calls to the network service", network / BOOTS, CALLS),
    ):
        # what goes on beside boots is a fraction of one: a whole one more per boot cannot hide in it
        table.add(BenchRow(name, round(value, 1), budget=budget if strict else None, counting=strict))
    for step in sorted(statements, key=lambda each: (ORDER.index(each) if each in ORDER else len(ORDER), each)):
        if statements[step] >= 0.05:
            print_line(f"      {step:28} {statements[step]:5.2f} statements  {commits.get(step, 0.0):5.2f} commits")
    for what, number in calls.items():
        print_line(f"      {what:28} {number / BOOTS:5.2f} calls")
    for kind, number in messages.items():
        print_line(f"      {kind:28} {number / BOOTS:5.2f} messages")
    embedded = ", ".join(f"{name} {number / BOOTS:.1f}" for name, number in spent.counters["embedded"].items())
    print_line(f"      statements of the embedded services' own, shown apart: {embedded}")


def event_rows(table: Table, statements: float, commits: float, messages: float, strict: bool) -> None:
    """What is allowed on top for each external event that is stored (RULES §2); the embedded network service sends one for each port."""
    for name, value in (("statements", statements), ("commits", commits), ("messages", messages)):
        table.add(
            BenchRow(
                f"on top, for the stored event of its port: {name}",
                value,
                budget=1 if strict else None,
                counting=strict,
            )
        )


def per_boot(spent: Spent, what: str) -> dict[str, float]:
    """By step, over all databases, without background work."""
    found: dict[str, float] = {}
    for _, label, number in spent.counters[what]:
        if not label.startswith(BACKGROUND):
            found[label or "(no step)"] = found.get(label or "(no step)", 0.0) + number / spent.boots
    return found
