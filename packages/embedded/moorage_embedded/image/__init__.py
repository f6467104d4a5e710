"""The embedded image service: the Glance v2 API, with records in SQL and data in one directory.

app         joins the parts: `make_image`
http        HTTP: token, method, answer
routes      every method and path
images      create, show, change, delete; `listing` has the filters of lists
data        upload and download; `files` stores the data
tasks       imports that go on after the answer; `task_imports` does them
metadefs    metadata definitions: namespaces; `metadef_parts` what is in them, `metadef_files` those of the operator
members     with whom an image is shared
attributes  the properties that an image may have; `patch` changes them
store       all of the SQL
"""
