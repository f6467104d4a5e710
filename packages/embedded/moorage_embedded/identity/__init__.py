"""The embedded identity service: Keystone v3's dialect for one machine, tests and newcomers.

app           joins the parts; `make_identity` is the way in
bootstrap     what a new cloud starts with
call          one request: who asks, its body, errors and lists in Keystone's shapes
desk          what every handler shares: database, tokens, passwords, and what is remembered of them
authenticate  methods and scope of a token request, to the facts of a token
standing      who somebody is on a scope, by which roles
tokens        sealed, self-contained tokens
passwords     bcrypt off the event loop, with a short memory
store         all of the SQL
nouns         the fields of each resource: what may be said of it, and by which it is found
"""
