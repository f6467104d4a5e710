"""Real guests: QEMU through libvirt.  The library is an extra of the package (`moorage[libvirt]`), and nothing here imports it before a
driver is started.

    driver.py       the verbs; life.py, plugging.py, snapshots.py and moves.py are its other parts
    link.py         the connection: threads, time limits, reconnecting
    records.py      the host's records of guests, as files; domain_xml.py makes libvirt's description of them
    live.py         live migration from here; live_arrivals.py: to here; transfers.py: their state in libvirt
    carrier.py      requests between two hosts; arriving.py answers them
    images.py       base images of disks; disks.py calls qemu-img
    wires.py        connects a guest's interfaces; plumber.py serves the networks of the embedded service
    host_facts.py   facts about the machine, and what is missing on it
    clean.py        removes everything
"""
