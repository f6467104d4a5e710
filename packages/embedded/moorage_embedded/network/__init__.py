"""The embedded network service: Neutron v2.0's dialect over one small database.

    app        joins the rest: `make_network`, hosts, seeding
    wire       HTTP in: routes, bodies, answers, problems
    nouns      what each noun's attributes are, and who may say or see them
    networks subnets ports bindings segments groups …      what each verb does, one noun a file
    addressing which address a port gets, on which subnet
    store      all the SQL

A verb runs whole inside one transaction, as a plain function; what must be told to others afterwards (events to
compute, inventories to placement) is collected in the `Call` and sent by `outbox` once the transaction is committed.
"""
