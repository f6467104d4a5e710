"""The embedded volume service: the Cinder v3 API, with records in SQL and volumes as sparse files in one directory.

app          joins the parts: `make_volume`
http         HTTP: token, microversion, method, answer
routes       every method and path
volumes      create, show, change, delete; `metadata` of volumes and snapshots; `listing` has the filters of lists
actions      `POST /volumes/{id}/action`, except attaching; `admin_actions` and `image_actions` have the others
attachments  from the reservation to the end; `connections` are the older calls for the same
snapshots    snapshots and their actions
groups       groups of volumes: made, shown, listed, changed; `group_actions` have the rest, `group_work` what follows the answer
group_types  group types and their specs; `group_snapshots` are snapshots of all volumes of a group
types        volume types, their extra specs, access, encryption and defaults; `qos`
quotas       what a project may have and has; `quota_routes` sets limits
matching     whether the back end has what a type requires; `messages` tell owners what failed
services     the service's own processes and their hosts
service_info zones, pools and other small resources
jobs         work after the answer: filling, copying, uploading, removing
files        the sparse files
views        documents as each microversion shows them
store        all of the SQL
"""
