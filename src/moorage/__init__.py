"""A compute cloud.  To boot a server, walk through these rooms, from the top:

    api            the front desk: understands the request, in the version it was asked in
    operations     the stories: boot, delete, power; each step beside its undo
    scheduler      thinks: which host would be best?  touches nothing
    placement      decides: who holds what, on which host
    clients        talks to network, volume, image and identity services
    store          remembers: the region's database, and one per cell
    bus            carries messages to the hosts
    agent          on each host: hears, and obeys
    drivers        makes guests; the one driver so far is the simulated one

The conductor tells the stories and tidies at night.  `main` is where rooms are joined.  `model` is
the language spoken in all of them.  You may walk down, never up; `make rooms` checks.
"""

__version__ = "0.2.0"
