"""Boot: accept_boot decides everything before the first step; boot is the saga; boot_ports and boot_claim do its work at
the network service and in placement; legacy_ports keeps what hosts of levels 1 and 2 need.
"""
