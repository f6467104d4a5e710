"""`python -m moorage_testing.hypervisor install | probe | bench … | tempest … | run PYTEST-ARGUMENTS…`."""

import sys

from moorage_testing.hypervisor.machine import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
