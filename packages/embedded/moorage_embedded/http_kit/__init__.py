"""What the embedded services share of HTTP; each service says in its own module how its API differs.

endpoint.py   the ASGI application: token, refusals, headers of every answer
routing.py    the parts of a path, and a table of routes by path templates (`volumes/{id}/action`)
bodies.py     a JSON body, read within a limit
paging.py     sorting, markers and links of lists
answers.py    JSON answers, and the refusal that any service may raise
"""
