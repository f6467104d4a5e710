"""Real guests for tests: `python -m moorage_testing.hypervisor` installs what they need and runs them isolated from the
machine.

machine.py       Debian's packages, the guest, a libvirt daemon of our own in namespaces of its own
build_guest.sh   makes the guest from Debian's kernel and BusyBox
leftovers.py     finds what the tests left behind
"""
