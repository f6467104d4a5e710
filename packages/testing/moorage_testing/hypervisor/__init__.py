"""Real guests for tests: `python -m moorage_testing.hypervisor` installs what they need and runs them isolated from the
machine.

machine.py       Debian's packages, the guest, a libvirt daemon of our own in namespaces of its own
probe.py         whether a guest really can run here
bench.py         what a boot takes, and how much of that is ours
build_guest.sh   makes the guest from Debian's kernel and BusyBox
build_login_guest.sh   one that has an SSH server, for Tempest
tempest_run.py   Tempest, from the outside of a cloud with such guests
guests.py        what guests log, and how they are asked for
redfish_controller.py  a management controller that really kills
leftovers.py     what is there that should be gone
"""
