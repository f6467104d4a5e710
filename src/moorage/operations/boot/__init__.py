"""Boot: accept_boot decides everything before the first step; boot is the saga; boot_ports and boot_claim call the
network service and placement for it; legacy_ports serves hosts of levels 1 and 2.
"""
