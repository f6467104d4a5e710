"""A web dashboard over the public API: pages, logins with the user's own token, and feeds that one poll serves to many browsers.

    app.py      the routes, in the order of what is checked
    guard.py    headers, origins, CSRF tokens, the limit of failed logins
    login.py    Keystone: password or application credential, a token for another project
    sessions.py the users who are logged in; tokens are kept in memory only
    upstream.py all calls to the endpoints of the token's catalog
    topics.py   what each page is made of: which calls, and which fields of their answers
    feeds.py    one poll for each topic and scope, and the browsers that follow it
    changes.py  what a page may ask the API to do
    files.py    pages, style and scripts, compressed once

It uses only the public HTTP API: another client could show everything that it shows.
"""
