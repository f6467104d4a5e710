"""`moorage ROLE …`: roles and local tools start in `main`; everything else speaks HTTP to a running cloud, from `cli`."""

import gc
import importlib
import os
import sys
from typing import Any

from moorage import __version__

ROLES = "moorage.main.roles"
COMMANDS = {
    "up": ("moorage.main.up", "a whole cloud in one process"),
    "api": ("moorage.main.roles", "the APIs, as a process of their own"),
    "conductor": ("moorage.main.roles", "executes operations, as a process of its own"),
    "agent": ("moorage.main.roles", "one host, as a process of its own"),
    "placement": (
        "moorage.main.placement_role",
        "the Placement API alone, at the root path, with a database of its own",
    ),
    "console": ("moorage.main.roles", "carries consoles between browsers and hosts, as a process of its own"),
    "console-web": ("moorage.main.roles", "the web console: pages over the public API, as a process of its own"),
    "metadata": ("moorage.main.roles", "the metadata service for guests, as a separate process"),
    "embedded": ("moorage.main.roles", "identity, image and network services for a set without real ones"),
    "set": (
        "moorage.main.local_cluster.command",
        "a trial set on this machine: PostgreSQL, NATS, two APIs, two conductors, agents",
    ),
    "bus": ("moorage.main.bus", "key | permissions | config: permissions on the message bus"),
    "explain": ("moorage.cli.explain", "why a server is where it is, or nowhere"),
    "host": (
        "moorage.cli.host",
        "approve | list | revoke: which hosts are let in; drain | show-drain | cancel-drain: one is emptied",
    ),
    "cell": ("moorage.cli.cell", "list | disable | enable | delete: the cells of the region"),
    "move": ("moorage.cli.move", "show | cancel: what a server's move has at its two ends, and the cancel of it"),
    "dry-run": (
        "moorage.cli.dry_run",
        "boot | resize | migrate | evacuate | unshelve: where a server would go, without doing it",
    ),
    "capacity": (
        "moorage.cli.capacity",
        "how many more servers fit, what runs out first, and what if a host, rack or cell fails",
    ),
    "status": ("moorage.cli.status", "which behaviour is on while hosts are upgraded, and what blocks the next"),
    "audit": ("moorage.cli.audit", "what is left over or wrong anywhere in the cloud, and its repair"),
    "heal-allocations": ("moorage.cli.heal_allocations", "claims are made to say what servers and their ports have"),
    "operation": ("moorage.cli.operation", "list | show: what is being done, and how far it is"),
    "waiting": ("moorage.cli.waiting", "list: which servers wait for a host, for what, and since when"),
    "demo": ("moorage.cli.demo", "boot a handful of servers and say where each landed and why"),
    "schedule": (
        "moorage.main.schedule",
        "make scheduling decisions again: recorded ones, by other weights too, or from files",
    ),
    "db": ("moorage.main.db", "show | upgrade: which revision the tables are at, and bringing them forward"),
    "secrets": ("moorage.main.secrets_command", "show | add-key | rotate | reencrypt | drop-old: the keys of a region"),
    "limits": ("moorage.main.limits_command", "migrate: copies quotas to the identity service as unified limits"),
    "policy": ("moorage.main.policy", "list: every policy rule, its default and what it guards"),
}

LOCAL = {"status": "moorage.main.status"}
"""With `--local`: looked at from this machine's configuration, without a running API."""


def main(argv: list[str] | None = None) -> int:
    """Dispatch to the command's own `main`."""
    os.umask(0o077)  # whatever a role or a command makes is its own user's alone
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in {"-h", "--help", "help"}:
        print("usage: moorage COMMAND …\n")
        for name, (_, description) in COMMANDS.items():
            print(f"  {name:16} {description}")
        print("\n`moorage COMMAND --help` says more.")
        return 0 if words else 2
    if words[0] in {"-V", "--version", "version"}:
        print(f"moorage {__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(f"moorage: there is no command {words[0]!r}; `moorage --help` lists them", file=sys.stderr)
        return 2
    local = "--local" in words and words[0] in LOCAL
    module = _imported(LOCAL[words[0]] if local else COMMANDS[words[0]][0])
    rest = words if COMMANDS[words[0]][0] == ROLES else words[1:]
    try:
        if module.__name__.startswith("moorage.cli."):
            return int(_imported("moorage.cli.cloud").run(module.main, rest))
        return int(module.main(rest))
    except BrokenPipeError:  # whoever reads along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _imported(name: str) -> Any:
    """A command's module, imported without collections of garbage: what an import makes stays until the process ends.

    Going through all of it again and again takes a fifth of a start.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
