"""More commands for test_openstack_client.py: every resource of the volume service.

The form of a line is told in openstack_script.py.
"""

VOLUMES = """
    v = volume create --size 1 --description words --property a=b v1
    loses creating volume show v1
    volume show v1 ~ available
    volume list --long ~ a='b'
    volume list --name v1 --status available ~ {v}
    volume list --property a=b ~ v1
    volume list --property a=c !~ v1
    volume list --all-projects --project admin --limit 1000 ~ v1
    volume set --name v2 --description others --property c=d --image-property os_distro=ubuntu --bootable v1
    volume show v2 ~ ubuntu
    volume unset --property a --image-property os_distro v2
    volume show v2 !~ ubuntu
    volume set --no-property --property e=f --read-only v2
    volume set --read-write --non-bootable v2
    volume set --size 2 v2
    loses extending volume show v2
    volume show v2 ~ available
    ! volume set --size 1 v2 ~ New size
    sn = volume snapshot create --volume v2 --description words --property a=b s1
    loses creating volume snapshot show s1
    volume snapshot list --long --volume v2 ~ s1
    volume snapshot list --name s1 --status available ~ {sn}
    volume snapshot list --all-projects ~ s1
    volume snapshot set --name s2 --property c=d s1
    volume snapshot unset --property a s2
    volume snapshot set --no-property --property e=f s2
    volume snapshot set --state error s2
    volume snapshot set --state available s2
    volume snapshot show s2 ~ available
    ! volume delete v2
    volume create --snapshot s2 of-snapshot ~ {sn}
    volume create --source v2 of-volume ~ {v}
    volume create --image tiny --size 1 of-image
    loses creating volume list
    volume show of-image ~ volume_image_metadata
    volume show -c bootable -f value of-image ~ True
    volume revert s2
    loses reverting volume show v2
    volume snapshot delete s2
    loses s2 volume snapshot list
    volume transfer request list !~ gift
    t = volume transfer request create --name gift of-volume
    volume transfer request list ~ gift
    volume transfer request show {t} ~ {t}
    volume show of-volume ~ awaiting-transfer
    volume transfer request delete {t}
    key:auth_key = volume transfer request create --name again of-volume
    t:ID = volume transfer request list
    ! volume transfer request accept --auth-key wrong {t} ~ Invalid auth key
    volume transfer request accept --auth-key {key} {t} ~ again
    volume set --state error of-volume
    volume show of-volume ~ error
    volume set --state available --detached of-volume
    s = server create --image tiny --flavor m1.nano --network private --wait holder ~ ACTIVE
    server add volume --device /dev/vdb holder of-volume
    loses reserved volume show of-volume
    volume list --long ~ Attached to holder
    volume show of-volume ~ {s}
    server volume list holder ~ vdb
    volume attachment list --os-volume-api-version 3.27 ~ attached
    ! volume delete of-volume
    ! image create --volume of-volume taken ~ must be available
    server remove volume holder of-volume
    loses in-use volume show of-volume
    image create --volume of-snapshot --force taken
    loses queued image show taken
    loses saving image show taken
    image show taken ~ active
    image delete taken
    server create --volume of-image --flavor m1.nano --network private --wait rooted ~ ACTIVE
    server show rooted ~ volumes_attached
    server delete --wait rooted
    server create --image tiny --boot-from-volume 1 --flavor m1.nano --network private --wait rooted ~ ACTIVE
    server delete --wait rooted
    server delete --wait holder
    loses of-image volume list --status in-use
    volume delete --force of-image
    volume delete --purge of-snapshot
    volume delete v2 of-volume
    loses v2 volume list
"""

KINDS = """
    volume type list ~ __DEFAULT__
    volume type list --default ~ __DEFAULT__
    volume type create --description words --property volume_backend_name=files --multiattach vt1 ~ multiattach
    volume type create --private --project demo vt2
    volume type list --long ~ vt1
    volume type list --private ~ vt2
    volume type list --public !~ vt2
    volume type list --encryption-type ~ vt1
    volume type show vt1 ~ files
    volume type show vt2 ~ access_project_ids
    volume type set --name vt3 --description others --property a=b vt1
    volume type unset --property a vt3
    volume type set --project admin vt2
    volume type unset --project admin vt2
    volume type set --encryption-provider luks --encryption-cipher aes-xts-plain64 --encryption-key-size 256 --encryption-control-location front-end vt2
    volume type show --encryption-type vt2 ~ luks
    volume type unset --encryption-type vt2
    volume qos create --consumer both --property a=b q1 ~ both
    volume qos set --property c=d q1
    volume qos associate q1 vt3
    volume qos list ~ vt3
    volume qos show q1 ~ vt3
    volume qos unset --property a q1
    volume qos disassociate --volume-type vt3 q1
    volume qos delete q1
    volume create --size 1 --type vt3 typed ~ vt3
    loses creating volume show typed
    volume set --type __DEFAULT__ --migration-policy never typed
    loses retyping volume show typed
    volume show typed ~ __DEFAULT__
    volume delete typed
    loses typed volume list
    volume type delete vt2 vt3
"""

SITE = """
    volume service list ~ cinder-volume
    volume service list --long ~ cinder-scheduler
    volume service set --disable --disable-reason broken moorage@files cinder-volume
    volume service list --long ~ broken
    volume service set --enable moorage@files cinder-volume
    volume backend pool list --long ~ files
    volume backend capability show moorage@files
    volume summary --all-projects ~ Total Count
    volume message list
    volume host set --disable moorage@files
    volume host set --enable moorage@files
    availability zone list --volume ~ nova
    extension list --volume ~ Hosts
    limits show --absolute ~ max_total_volumes
    quota show --volume ~ gigabytes
    quota show --volume --usage demo ~ volumes
    quota set --volumes 11 --snapshots 12 --gigabytes 13 demo
    quota show --volume demo ~ 13
    quota list --volume ~ 11
    quota set --gigabytes 14 --volume-type __DEFAULT__ demo
    quota delete --volume demo
    quota show --volume --default ~ 1000
    volume backup list
    ! volume backup show nothing
    consistency group list
    block storage resource filter list ~ volume
    block storage resource filter show volume ~ status
    block storage cluster list
    block storage volume manageable list moorage@files
    block storage snapshot manageable list moorage@files
"""

GROUPS = """
    volume group type list ~ default_cgsnapshot_type
    volume group type create --description words gt1 ~ gt1
    volume group type set --description others --property a=b gt1
    volume group type show gt1 ~ a='b'
    g:ID = volume group create --volume-group-type gt1 --volume-type __DEFAULT__ --name g1
    loses creating volume group show g1
    volume group list ~ {g}
    volume group show --volumes g1 ~ available
    volume create --size 1 --type __DEFAULT__ grouped
    loses creating volume show grouped
    v = volume show grouped
    volume group set --name g2 --description words g1
    ! volume group type delete gt1 ~ in use
    volume group snapshot list !~ gs1
    ! volume group snapshot create --name gs1 g2 ~ cannot be empty
    volume group delete g2
    loses g2 volume group list
    volume delete grouped
    volume group type delete gt1
"""
