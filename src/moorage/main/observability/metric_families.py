"""Every family of metrics that a process may show, with its labels: the names that dashboards and alert rules may use.

No label has values that users or operators choose: no ids, no host names, and of paths only the templates.  A `counter` and a
`histogram` count within one process; a `gauge` is the value at the scrape.
"""

from typing import Literal, NamedTuple

Type = Literal["gauge", "counter", "histogram"]


class Family(NamedTuple):
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    bounds_s: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in seconds."""


QUICK_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 14_400.0)

FAMILIES: dict[str, Family] = {
    # the process
    "moorage_build_info": Family("gauge", "1; what this process is", ("version", "role", "python")),
    "moorage_ready": Family("gauge", "Whether /readyz answers 200"),
    # requests
    "moorage_requests_total": Family(
        "counter", "Requests that were answered", ("service", "method", "route", "status")
    ),
    "moorage_request_seconds": Family(
        "histogram", "From a request's head to the end of its answer", ("service", "method", "route"), QUICK_S
    ),
    "moorage_requests_in_flight": Family("gauge", "Requests that are being answered", ("service",)),
    "moorage_connections": Family("gauge", "Connections to a listener", ("service",)),
    "moorage_refused_total": Family(
        "counter", "Connections, and requests by status, that a listener turned away without asking its service", ("service", "why")
    ),
    "moorage_consoles_open": Family("gauge", "Consoles that this proxy carries"),
    # operations
    "moorage_operations": Family("gauge", "Operations of the region that have not ended", ("saga", "state")),
    "moorage_operations_oldest_seconds": Family("gauge", "Since the oldest of them was accepted", ("saga", "state")),
    "moorage_operations_told_total": Family(
        "counter", "Operations that this conductor finished executing, by outcome: done, failed, cancelled, stuck, asleep, left", ("saga", "outcome")
    ),
    "moorage_operation_seconds": Family(
        "histogram", "From the moment when this conductor began to execute an operation until it finished", ("saga",), LONG_S
    ),
    "moorage_step_seconds": Family(
        "histogram", "A step of a saga with all its tries: its do or its undo", ("step", "phase"), LONG_S
    ),
    # the conductor
    "moorage_conductor_places": Family("gauge", "Operations of a kind that may be executed at once, for now", ("kind",)),
    "moorage_conductor_taken": Family("gauge", "Operations of a kind that are executed", ("kind",)),
    "moorage_conductor_line": Family("gauge", "Operations of a kind that wait for a place", ("kind",)),
    "moorage_conductors_living": Family("gauge", "Conductors of the region whose leases hold, as this one knows"),
    "moorage_conductor_leads": Family("gauge", "Whether this conductor runs the region's rounds"),
    "moorage_lease_held": Family("gauge", "Whether this conductor's lease holds"),
    "moorage_lease_left_seconds": Family("gauge", "For how long it holds without being renewed"),
    "moorage_leases_lost_total": Family("counter", "Leases that this process lost and took again"),
    "moorage_round_age_seconds": Family("gauge", "Since a round of this process last began", ("round",)),
    "moorage_round_failed": Family("gauge", "Whether its last run ended with a problem", ("round",)),
    # boots that wait for a host
    "moorage_waiting_servers": Family(
        "gauge", "Servers of the region that wait for a host, by what they lack; who lacks two things counts for both", ("cause",)
    ),
    "moorage_waiting_servers_oldest_seconds": Family("gauge", "Since the first of them began to wait; 0: none does", ("cause",)),
    "moorage_debts": Family("gauge", "Things that hosts of the region owe to servers, because they were silent"),
    "moorage_debts_oldest_seconds": Family("gauge", "Since the first of them was written; 0: none is open"),
    "moorage_doubtful_servers": Family("gauge", "Servers that are left alone, for a database went back; by the last round of who leads", ("cell",)),
    "moorage_wakeups_total": Family(
        "counter", "Waiting servers that this conductor woke: for room, their time is over, they were cancelled", ("why",)
    ),
    "moorage_wakeups_in_vain_total": Family("counter", "Those woken for room that fell asleep again"),
    "moorage_waiting_searches_total": Family("counter", "Searches for a host on behalf of sleeping servers"),
    "moorage_decision_records_total": Family(
        "counter", "Records of decisions that this conductor kept in files, and those that it lost", ("outcome",)
    ),
    # what waits in tables
    "moorage_outbox_rows": Family("gauge", "Notifications that wait to be sent", ("database",)),
    "moorage_outbox_oldest_seconds": Family("gauge", "Since the oldest of them was written", ("database",)),
    "moorage_inbox_events": Family("gauge", "External events that are kept, acted on or not"),
    "moorage_inbox_oldest_seconds": Family("gauge", "Since the oldest of them was received"),
    # hosts
    "moorage_hosts": Family("gauge", "Hosts of a cell: up, silent, or forced down", ("cell", "state")),
    "moorage_beat_oldest_seconds": Family("gauge", "Of the hosts that are up: since the last sign of life, the longest", ("cell",)),
    "moorage_ports_not_wired": Family("gauge", "What a host could not wire or filter of its ports, as far as it names it; hosts without are left out", ("cell", "host")),
    "moorage_commands_total": Family("counter", "Commands to hosts that ended", ("verb", "outcome")),
    "moorage_command_seconds": Family("histogram", "From a command to its answer", ("verb",), LONG_S),
    "moorage_commands_in_flight": Family("gauge", "Commands whose answers are waited for"),
    # the agent
    "moorage_agents": Family("gauge", "Agents of this process: home, or away and asking their cell", ("state",)),
    "moorage_agent_jobs_waiting": Family("gauge", "Commands that its agents have not begun"),
    "moorage_agent_lanes": Family("gauge", "Servers that its agents are busy with"),
    "moorage_guests_without_space": Family("gauge", "Real guests that stand still until there is space for what they write to their disks"),
    "moorage_agent_verbs_total": Family("counter", "Commands that its agents finished", ("verb", "outcome")),
    "moorage_agent_verb_seconds": Family("histogram", "The driver's part of them", ("verb",), LONG_S),
    # placement
    "moorage_picture_age_seconds": Family("gauge", "Since this process's provider cache was last brought up to date"),
    "moorage_picture_hosts": Family("gauge", "Hosts in it"),
    # services
    "moorage_calls_total": Family(
        "counter", "Calls to services, by their status or the kind of failure", ("neighbour", "call", "outcome")
    ),
    "moorage_call_seconds": Family("histogram", "From a call to its end", ("neighbour", "call"), QUICK_S),
    "moorage_calls_lost_total": Family("counter", "Calls with an unknown outcome, or without an answer", ("neighbour",)),
    "moorage_breaker_open": Family("gauge", "Circuits to a service, or a cell's database, that are open; 0: it is called", ("neighbour",)),
    "moorage_breaker_refused_total": Family("counter", "Calls that were not made, for a circuit was open", ("neighbour",)),
    # databases
    "moorage_database_answers": Family("gauge", "Whether it answered the last read in time", ("database",)),
    "moorage_database_connections": Family("gauge", "Connections that this process may have to it", ("database",)),
    "moorage_database_connections_in_use": Family("gauge", "Connections that are in use", ("database",)),
    "moorage_database_waiting": Family("gauge", "Transactions that wait for a connection or for their turn", ("database",)),
    "moorage_database_statements_total": Family("counter", "Statements that this process ran", ("database",)),
    "moorage_database_commits_total": Family("counter", "Commits that wrote", ("database",)),
    # the bus
    "moorage_bus_healthy": Family("gauge", "Whether the connection to the bus is open, as far as is known"),
    "moorage_bus_outages_total": Family("counter", "How often it was cut and open again"),
    "moorage_bus_published_total": Family("counter", "Messages that were sent"),
    "moorage_bus_lost_total": Family("counter", "Messages that were not sent, for the bus was out"),
    "moorage_bus_forged_total": Family("counter", "Messages that were ignored, because their sender may not send them"),
    "moorage_bus_excess_total": Family("counter", "Messages that were ignored unread, because a host sent more than its share"),
}  # fmt: skip

LIBRARY_FAMILIES = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
    "python_gc_collections_total",
    "python_gc_objects_collected_total",
    "python_gc_objects_uncollectable_total",
)
"""What `prometheus_client` says of a process, on Linux."""


def samples(name: str) -> tuple[str, ...]:
    """Return the names of a family's samples."""
    if FAMILIES[name].type == "histogram":
        return tuple(f"{name}_{part}" for part in ("bucket", "sum", "count"))
    return (name,)
