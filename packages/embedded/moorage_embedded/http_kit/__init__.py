"""What the embedded services share of HTTP; each service says in its own modules how its API differs.

endpoint.py   the ASGI application: limits of the query, token, what is answered to what is raised, headers of every answer
routing.py    the parts of a path, and the table of routes by path templates (`volumes/{id}/action`)
bodies.py     a JSON body, read within a limit
values.py     numbers and moments of queries and bodies, and values that a JSON schema describes
paging.py     filters by tags, sorting, markers and links of lists
answers.py    JSON answers, and the refusal that any service may raise

A call of a service is a line in its `routes.py`: template, method and handler, a named function in the module of its resource.
A service's `http.py` has its endpoint, which finds the handler, gives it the call and refuses in the form of its API; its
`request.py` has the call. `tests/api/test_access_embedded.py` and the fuzz read the tables, so a new line is asked there too.
"""
