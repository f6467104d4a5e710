"""The commands of test_openstack_client.py about servers and hosts: what operators and users type, each expected to succeed.

A line is what stands after `openstack`.  `! line` must fail.  `name = line` keeps the `id` of the answer as `{name}`
(`name:field = line` keeps another field).  `line ~ text` needs the text in the output, `line !~ text` must not have it.
`loses text line` repeats the line until the text is no longer in its output.
"""

SERVERS = """
    key = keypair create --public-key {pubkey} k1
    keypair list ~ k1
    keypair show k1
    keypair show --public-key k1 ~ ssh-ed25519
    s = server create --image tiny --flavor m1.nano --network private --key-name k1 --property a=b --wait s1 ~ ACTIVE
    server list ~ s1
    server list --long ~ ACTIVE
    server list --name s1 --status ACTIVE ~ s1
    server list --no-name-lookup ~ {s}
    server list --flavor m1.nano --image tiny ~ s1
    server list --limit 1
    server list --sort-column name ~ s1
    server list --ip 10.20 ~ s1
    server list --changes-since 2020-01-01T00:00:00Z ~ s1
    server show s1 ~ m1.nano
    server show {s} ~ {s}
    server set --property c=d s1
    server show s1 ~ c
    server unset --property a s1
    server set --name s2 s1
    server show s2 ~ s2
    console log show s2
    server stop s2
    wait SHUTOFF s2
    server start s2
    wait ACTIVE s2
    server pause s2
    wait PAUSED s2
    server unpause s2
    wait ACTIVE s2
    server suspend s2
    wait SUSPENDED s2
    server resume s2
    wait ACTIVE s2
    server reboot --wait s2
    server reboot --hard --wait s2
    server rebuild --image tiny --property e=f --wait s2 ~ e='f'
    server rescue s2
    wait RESCUE s2
    server unrescue s2
    wait ACTIVE s2
    server resize --flavor m1.tiny s2
    wait VERIFY_RESIZE s2
    server resize revert s2
    wait ACTIVE s2
    server show s2 ~ m1.nano
    server resize --flavor m1.tiny s2
    wait VERIFY_RESIZE s2
    ! server stop s2 ~ resized
    server resize confirm s2
    wait ACTIVE s2
    server show s2 ~ m1.tiny
    ! server resize --flavor m1.tiny s2
    server set --password s3cret-9 s2
    server event list s2 ~ changePassword
    server lock s2
    ! server stop s2 ~ locked
    server unlock s2
    server event list s2 ~ create
    server event list --long s2 ~ create
    server volume list s2
    server create --image tiny --flavor m1.nano --network private --min 2 --max 2 many
    wait ACTIVE many-1
    wait ACTIVE many-2
    server list --name many ~ many-2
    server delete --wait many-1 many-2
    hinted = server group create --policy anti-affinity g1
    server group list ~ g1
    server group list --long ~ anti-affinity
    server group show g1 ~ anti-affinity
    server create --image tiny --flavor m1.nano --network private --hint group={hinted} --wait grouped ~ ACTIVE
    server delete --wait grouped
    server group delete g1
    p = port create --network private p1
    server create --image tiny --flavor m1.nano --port p1 --wait ported ~ ACTIVE
    port show p1 ~ ACTIVE
    port list --server ported ~ {p}
    server delete --wait ported
    port show p1 ~ DOWN
    port delete p1
    server delete --wait s2
    ! server show s2 ~ No
    keypair delete k1
    quota show ~ instances
    usage show
    availability zone list ~ nova
    flavor list ~ m1.tiny
    flavor show m1.tiny ~ 512
    versions show --service compute ~ 2.104
    extension list --compute
"""
INTERFACES = """
    s = server create --image tiny --flavor m1.nano --network private --wait wired ~ ACTIVE
    p = port create --network private plugged
    server add port wired plugged
    port show plugged ~ {s}
    port list --server wired ~ {p}
    ! server add port wired plugged ~ in use
    server event list wired ~ attach_interface
    server remove port wired plugged
    loses {p} port list --server wired
    port show plugged ~ DOWN
    server event list wired ~ detach_interface
    port delete plugged
    server add network wired routed
    server show wired ~ routed=
    server remove network wired routed
    loses routed= server show wired
    f:Port ID = server add fixed ip wired private
    server add fixed ip --fixed-ip-address 10.20.0.199 wired private ~ 10.20.0.199
    ! server add fixed ip --fixed-ip-address 10.20.0.199 wired private ~ already in use
    server show wired ~ 10.20.0.199
    server remove port wired {f}
    loses {f} port list --server wired
    ! server remove port wired {f} ~ {f}
    ! server add network wired nowhere ~ nowhere
    server lock wired
    ! server add network wired private ~ locked
    server unlock wired
    server stop wired
    wait SHUTOFF wired
    server add network wired private
    server start wired
    wait ACTIVE wired
    server delete --wait wired
"""
INTERFACES_SINCE_2_49 = """
    server create --image tiny --flavor m1.nano --network private --wait tagged ~ ACTIVE
    port create --network private red
    server add port --tag red tagged red
    server add network --tag blue tagged private
    server add fixed ip --tag green tagged private ~ green
    server delete --wait tagged
    port show red ~ DOWN
    port delete red
"""
SERVERS_SINCE_2_74 = """
    t = server create --image tiny --flavor m1.nano --network private --tag red --description words --wait tagged
    server show tagged ~ red
    server show tagged ~ words
    server set --tag blue tagged
    server list --tags red,blue ~ tagged
    server unset --tag red tagged
    server set --description other tagged
    server show tagged ~ other
    server unset --description tagged
    server set --hostname moved tagged
    server lock --reason upgrade tagged
    server show tagged ~ upgrade
    server list --locked ~ tagged
    server unlock tagged
    server event list tagged ~ create
    server volume list tagged
    server migrate tagged
    wait VERIFY_RESIZE tagged
    server migration list --server tagged ~ finished
    server migration revert tagged
    wait ACTIVE tagged
    here:OS-EXT-SRV-ATTR:host = server show tagged
    ! server migrate --host {here} tagged ~ where the server exists
    server migrate tagged
    wait VERIFY_RESIZE tagged
    server migration confirm tagged
    wait ACTIVE tagged
    server show tagged !~ {here}
    server migration list --server tagged ~ confirmed
    server migration list --type cold-migration --status reverted ~ reverted
    server event list tagged ~ confirmResize
    dead:OS-EXT-SRV-ATTR:host = server show tagged
    ! server evacuate tagged ~ still in use
    compute service set --down {dead} nova-compute
    ! server evacuate --host nowhere tagged ~ not found
    server evacuate tagged
    wait SHUTOFF tagged
    server show tagged !~ {dead}
    server migration list --server tagged --type evacuation ~ {dead}
    compute service set --up {dead} nova-compute
    server start tagged
    wait ACTIVE tagged
    server event list tagged ~ evacuate
    server delete --wait tagged
    server list --deleted --all-projects ~ tagged
    server create --image tiny --flavor m1.nano --nic auto --wait automatic ~ ACTIVE
    server delete --wait automatic
    ! server create --image tiny --flavor m1.nano --network routed --network nowhere lost ~ nowhere
    server create --image tiny --flavor m1.nano --nic none --wait lonely ~ ACTIVE
    server delete --wait lonely
    server group create --policy anti-affinity --rule max_server_per_host=2 ruled ~ max_server_per_host
    server group delete ruled
"""
LIMITS = """
    limits show --absolute ~ max_total_instances
    limits show --rate
    limits show --absolute --project demo ~ max_total_cores
"""


# From 2.75 on Nova refuses the query `reserved`, which the client sends at every version that is asked for by number.
HOSTS = """
    compute service list ~ nova-compute
    compute service list --long ~ host1
    compute service list --service nova-conductor ~ nova-conductor
    compute service set --disable --disable-reason broken host1 nova-compute
    compute service list --long --host host1 ~ broken
    compute service set --enable host1 nova-compute
    hypervisor list ~ host1
    hypervisor list --long ~ host1
    hypervisor list --matching host1 ~ host1
    hypervisor show host1 ~ up
    a = aggregate create --zone z1 --property ssd=true a1
    aggregate list --long ~ z1
    aggregate show a1 ~ ssd
    aggregate add host a1 host1 ~ host1
    availability zone list --compute --long ~ z1
    server create --image tiny --flavor m1.nano --network private --availability-zone z1 --wait zoned ~ ACTIVE
    server show zoned ~ z1
    server list --all-projects --host host1 --long ~ zoned
    server delete --wait zoned
    aggregate set --name a2 --property ssd=false --property gpu=true a1
    aggregate unset --property gpu a2
    aggregate remove host a2 host1
    aggregate delete a2
    server list --all-projects
    flavor create --ram 64 --disk 1 --vcpus 1 --private --property hw:cpu_policy=shared mine
    flavor show mine ~ hw:cpu_policy
    flavor set --property hw:mem_page_size=small --project demo mine
    flavor unset --property hw:cpu_policy --project demo mine
    flavor list --all --long ~ mine
    flavor list --private ~ mine
    flavor delete mine
    quota set --instances 11 demo
    quota show demo ~ 11
    quota list --compute ~ 11
    quota set --instances 10 demo
    quota delete --compute demo
    quota show --default ~ instances
    usage list
    server migration list
"""
HOSTS_SINCE_2_74 = """
    keypair list --user demo
    flavor create --ram 64 --disk 1 --vcpus 1 --description words worded ~ words
    flavor set --description others worded
    flavor delete worded
    compute service set --down host2 nova-compute
    compute service list --host host2 ~ down
    compute service set --up host2 nova-compute
    server create --image tiny --flavor m1.nano --network private --host host3 --wait placed ~ ACTIVE
    server show placed ~ host3
    server delete --wait placed
"""
SERVERS_SINCE_2_17 = """
    server create --image tiny --flavor m1.nano --network private --wait dumped
    server dump create dumped
    server event list dumped ~ trigger_crash_dump
    server delete --wait dumped
"""
BEFORE_LIVE_MIGRATIONS = """
    server create --image tiny --flavor m1.nano --network private --wait lives ~ ACTIVE
    here:OS-EXT-SRV-ATTR:host = server show lives
"""
LIVE_ABORT = """
    move:Id = server migration list --server lives --status running
    server show lives ~ MIGRATING
    ! server stop lives
    server migration abort lives {move}
    wait ACTIVE lives
    server show lives ~ {here}
    server migration list --server lives --status cancelled ~ live-migration
    ! server migration abort lives {move}
"""
LIVE_FORCE = """
    move:Id = server migration list --server lives --status running
    server migration force complete lives {move}
    wait ACTIVE lives
    server show lives !~ {here}
    server event list lives ~ live_migration_force_complete
    ! server migration force complete lives {move}
"""
LIVE_MIGRATIONS = """
    here:OS-EXT-SRV-ATTR:host = server show lives
    ! server migrate --live-migration --host nowhere lives ~ could not be found
    server migrate --live-migration --block-migration lives
    wait ACTIVE lives
    server show lives !~ {here}
    server migration list --server lives --type live-migration --status completed ~ completed
    server delete --wait lives
"""
