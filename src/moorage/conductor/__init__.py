"""The night shift: tells the sagas, takes hosts' reports, adopts the work of the dead, tidies."""
