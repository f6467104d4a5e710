"""Boot: accept_boot decides everything before the first step; boot is the saga; legacy_ports keeps what hosts of levels
1 and 2 need.
"""
