"""The embedded network service: the Neutron v2.0 API over one small database.

    app        joins the parts: `make_network`, hosts, seeding
    http       HTTP: bodies, answers, errors; `routes` has every path and its verbs
    resources  the resources, their attributes (`attributes`), and who may set or see them
    networks subnets ports port_bindings segments …      what each method does, one resource in a file
    addressing which address a port gets, on which subnet
    store      all of the SQL

A method runs completely inside one transaction, as a plain function; messages for others (events to compute,
inventories to placement) are collected in the `Call` and sent by `outbox` after the commit.
"""
