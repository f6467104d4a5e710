"""Malformed requests to every listener and malformed messages to conductors and agents: `python -m moorage_testing.fuzz`, or `make fuzz`.

What is sent is drawn from the tables of routes and the shapes of bodies and messages, then spoiled: values of other types and sizes,
names left out, added or repeated, texts that no database and no terminal likes, and at last bytes. All of it comes from one seed.

A run fails when anything answers 500, breaks with a traceback in the log, keeps the process busy or an answer waiting for more than a
second (asked once more, alone, for the machine may be busy with others), when memory grows by more than a bound between the halves of
what is sent, or when the cloud boots no server afterwards.
"""
