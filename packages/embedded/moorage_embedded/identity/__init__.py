"""The embedded identity service: the Keystone v3 API for one machine and for tests.

app                joins the parts; `make_identity` builds the service
bootstrap          what a new cloud starts with
http               HTTP: versions, tokens, errors; `routes` has every method and path
request            one request: the caller, its body, and lists in Keystone's form
context            shared by all handlers: database, tokens, passwords, caches
authentication     from the methods and scope of a token request to the facts of a token
effective_roles    the roles that a user has on a scope
tokens             sealed, self-contained tokens
passwords          bcrypt in threads, with a short-lived cache
store              all of the SQL
schemas            the fields of each resource, and the filters of its lists
"""
