"""The audit: compares everything that services and hosts hold for servers with the servers' records (N4).

    reader.py     reads what is compared, page by page: mappings and claims of the region, records of the cells, and
                  lists of the network and volume services and of the hosts' reports
    record_checks.py, claim_checks.py, port_checks.py, volume_checks.py, guest_checks.py
                  checks: plain functions over what was read, which return findings
    region_checks.py  checks of what belongs to no single server: quota, counters, images, temporary rows
    auditor.py    reads everything, and the suspects a second time
    repairs.py    repairs, with the code of operations and reconcilers, and writes a journal

Work of a running operation is never a finding: a server that an operation holds is skipped, and a suspect of the first
read is read again alone. It is a finding when both reads saw the same, and when no operation began or ended during the
second. What could not be read is named in the report, and nothing is concluded about it (RULES §22).
"""
