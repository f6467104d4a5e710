"""Real guests: QEMU through libvirt.  The library is an extra of the package (`moorage[libvirt]`), and nothing here imports it before a
driver is started.

    driver.py       the verbs; life.py, plugging.py, snapshots.py and moves.py are its other halves
    link.py         the connection: threads, time limits, reconnecting
    records.py      what the host keeps of each guest, as files; domain_xml.py makes libvirt's word of it
    live.py         guests that go elsewhere while they run; live_arrivals.py: and come; transfers.py: what libvirt says of it
    carrier.py      between two hosts; arriving.py answers
    images.py       images that disks are made over; disks.py calls qemu-img
    wires.py        how a guest's interfaces get their wires; plumber.py serves the networks of the embedded service
    host_facts.py   what the machine is, and what is missing on it
    clean.py        everything goes
"""
