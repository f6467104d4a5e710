"""The real services, for `make test-real`: Keystone, Glance, Neutron and Placement from PyPI, alone on the loopback address.

    install     brings them into a virtual environment of their own, once
    settings    writes their configuration: SQLite, files, free ports, their own default policies
    stack       starts and stops them, and says who may log in
    fixtures    the same, for pytest
    inside      what runs in their environment, not in ours

Nothing is patched but one name in Neutron (`inside/neutron_with_agents.py` says why).  It has no agents: their rows are written
once, with a heartbeat far in the future, so its openvswitch mechanism driver binds ports on those hosts and refuses all others,
as it would in production.  A test may report an agent's state as that agent would, and Neutron takes it as every agent's.
"""
