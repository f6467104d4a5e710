"""A small volume service that speaks Cinder's v3 dialect: records in SQL, volumes as sparse files in one directory.

app          joins it: `make_volume`
wire         HTTP in: whose token, which microversion, which verb, which answer
routes       every method and path
volumes      create, show, change, delete; `metadata` of volumes and snapshots; `listing` reads the filters of lists
actions      `POST /volumes/{id}/action`: what is done to a volume, beside attaching
attachments  who may use a volume, from the reservation to the end; `connections` are the older calls for the same
snapshots    snapshots and their actions
types        volume types, their extra specs, access, encryption, QoS and defaults
quotas       what a project may have, and has; limits
matching     whether the back end has what a type asks for; `messages` tell owners what failed
services     the service's own processes and their hosts
site         zones, pools and all that is small
jobs         what goes on after the answer: filling, copying, uploading, removing
files        the sparse files
views        documents as each microversion shows them
store        all the SQL
"""
