"""`python -m moorage.testing.hypervisor install | run PYTEST-ARGUMENTS…`."""

import sys

from moorage.testing.hypervisor.machine import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
