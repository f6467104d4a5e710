"""A compute control plane.  The packages, from the top; each may import those below it, never those above (`make layers`):

main           reads the configuration and builds processes: the only place where packages are joined
api            HTTP: the Compute API, the Placement API, metadata and consoles
cli            commands for people, over the public API
webconsole     pages in a browser, over the public API
conductor      executes operations, takes hosts' reports, runs reconcilers
agent          on each host: executes commands through a driver
operations     sagas: boot, delete, resize, live migration …; each step beside its undo
scheduler      pure functions: which host is best, and why the others are rejected
placement      claims and the provider cache; SQL decides
clients        the network, volume, image and identity services
store          all SQL of the region's database and of the cells'
bus            messages between processes
drivers        make guests: a simulated hypervisor, libvirt, a fence by Redfish
saga           the engine that executes sagas and keeps their journals
sql            transactions on SQLite and PostgreSQL
model          values that all packages share: ids, servers, networks, errors; no I/O
"""

__version__ = "0.2.0"
