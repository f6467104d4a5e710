"""The night shift: tells the stories, takes hosts' reports, adopts the work of the dead, tidies."""
