"""Real guests for tests: `python -m moorage_testing.hypervisor` installs what they need and runs them where they disturb nobody.

machine.py       Debian's packages, the guest, a libvirt daemon of our own in namespaces of its own
build_guest.sh   makes the guest from Debian's kernel and BusyBox
leftovers.py     what is there that should be gone
"""
