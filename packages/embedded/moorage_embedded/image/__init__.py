"""A small image service that speaks Glance's v2 dialect: records in SQL, data in one directory.

app         joins it: `make_image`
wire        HTTP in: whose token, which verb, which answer
routes      every method and path
images      create, show, change, delete; `listing` reads the many filters of a list
data        upload and download; `formats` looks at what was uploaded, `files` keeps it
members     with whom an image is shared
attributes  what an image may say of itself; `patch` changes it
store       all the SQL
"""
