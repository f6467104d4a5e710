"""The audit: everything a cloud holds for its servers, compared with what the servers' records say (N4).

    reader.py     what is compared, read by the page: mappings and claims of the region, records of the cells, and lists of the
                  network and volume services and of the hosts' reports
    records.py, claims.py, ports.py, stores.py, guests.py
                  checks: plain functions over what was read, that answer with findings
    wholes.py     checks of what belongs to no single server: quota, counters, images, what is kept only for a time
    auditor.py    looks twice
    repairs.py    mends, by the code that operations and reconcilers use, and keeps a journal

Nothing is a finding that an operation has in hand: a server that one holds is not looked at, and what the first look suspects is
looked at a second time, by itself.  It is a finding when both looks saw the same, and when no operation began, or came and went, in
the second.  What could not be read is named, and nothing is said of it (RULES §22).
"""
