"""The whole cloud in one process, on a virtual clock, with faults drawn from a seed: docs/howto/simulate.md."""
