"""More commands for test_openstack_client.py: every resource of the network service that Moorage or a cloud's users need.

The form of a line is told in openstack_script.py.
"""

POOLS_AND_SHARING = """
    pool = subnet pool create --pool-prefix 198.51.100.0/24 --default-prefix-length 26 --share pl1 ~ 198.51.100.0/24
    subnet pool list --long ~ pl1
    subnet pool set --name pl2 --max-prefix-length 30 --description words pl1
    subnet pool show pl2 ~ words
    subnet pool set --pool-prefix 203.0.113.0/24 pl2
    net = network create --share n3 ~ shared
    subnet create --network n3 --subnet-pool pl2 --prefix-length 27 pooled ~ 198.51.100.
    ! subnet pool delete pl2
    subnet set --allocation-pool start=198.51.100.10,end=198.51.100.20 --no-allocation-pool pooled
    subnet set --host-route destination=10.0.0.0/8,gateway=198.51.100.2 pooled
    subnet unset --host-route destination=10.0.0.0/8,gateway=198.51.100.2 pooled
    network rbac list --type network --long ~ {net}
    share = network rbac create --type network --action access_as_external --target-project demo n3
    network rbac show {share} ~ access_as_external
    network rbac set --target-project admin {share}
    network rbac delete {share}
    network set --no-share n3
    network set --share n3
    network set --mtu 1400 n3
    network show n3 ~ 1400
    ip availability show n3 ~ 198.51.100
    p = port create --network n3 --vnic-type direct --no-security-group --disable-port-security bound ~ direct
    port set --host host1 bound
    port unset --host bound
    port set --allowed-address mac-address=fa:16:3e:00:00:99,ip-address=198.51.100.99 --enable-port-security bound
    port show bound ~ 198.51.100.99
    port unset --allowed-address mac-address=fa:16:3e:00:00:99,ip-address=198.51.100.99 bound
    port delete bound
    subnet delete pooled
    network delete n3
    subnet pool delete pl2
"""

QOS = """
    pol = network qos policy create --share --description words q1 ~ words
    network qos policy list ~ q1
    network qos policy set --name q2 --default q1
    network qos policy set --no-default q2
    network qos policy show q2 ~ words
    bw = network qos rule create --type bandwidth-limit --max-kbps 1000 --max-burst-kbits 800 --egress q2 ~ 1000
    dscp = network qos rule create --type dscp-marking --dscp-mark 18 q2 ~ 18
    min = network qos rule create --type minimum-bandwidth --min-kbps 500 --egress q2 ~ 500
    pps = network qos rule create --type minimum-packet-rate --min-kpps 5 --any q2 ~ 5
    network qos rule list q2 ~ minimum_packet_rate
    network qos rule set --max-kbps 2000 q2 {bw}
    network qos rule show q2 {bw} ~ 2000
    network qos rule set --min-kbps 600 q2 {min}
    network qos rule show q2 {min} ~ 600
    network qos rule set --min-kpps 6 q2 {pps}
    network qos rule type list ~ minimum_bandwidth
    network create --qos-policy q2 qn ~ {pol}
    subnet create --network qn --subnet-range 192.0.2.0/24 qs
    port create --network qn qp
    port show qp ~ NET_BW_EGR_KILOBIT_PER_SEC
    port create --network qn --qos-policy q2 qq ~ {pol}
    ! network qos policy delete q2
    port unset --qos-policy qq
    network set --no-qos-policy qn
    port delete qp
    port delete qq
    network delete qn
    network qos rule delete q2 {pps}
    network qos rule delete q2 {min}
    network qos rule delete q2 {dscp}
    network qos rule delete q2 {bw}
    network qos policy delete q2
"""

ROUTERS = """
    out = network create --external --default ext ~ "router:external": true
    subnet create --network ext --subnet-range 203.0.113.0/24 --no-dhcp extsub
    network create in1
    subnet create --network in1 --subnet-range 192.0.2.0/24 insub
    r = router create --external-gateway ext r2 !~ "ha":
    router list --long ~ r2
    router show r2 ~ {out}
    router show r2 !~ ha | None
    router add subnet r2 insub
    router add route --route destination=10.1.0.0/16,gateway=192.0.2.9 r2
    router show r2 ~ 10.1.0.0/16
    router remove route --route destination=10.1.0.0/16,gateway=192.0.2.9 r2
    router set --name r3 --description words --disable r2
    router set --enable r3
    port list --router r3 ~ 192.0.2.1
    fip = floating ip create --description words ext ~ 203.0.113.
    floating ip list --long ~ words
    floating ip show {fip} ~ DOWN
    fport = port create --network in1 fp
    floating ip set --port fp {fip}
    floating ip show {fip} ~ {fport}
    floating ip list --port fp ~ {fip}
    floating ip unset --port {fip}
    s = server create --image tiny --flavor m1.nano --network in1 --wait floated ~ ACTIVE
    fip:floating_ip_address = floating ip show {fip}
    server add floating ip floated {fip}
    wait ACTIVE floated
    server remove floating ip floated {fip}
    security group create sgs
    server add security group floated sgs
    server show floated ~ sgs
    server remove security group floated sgs
    server show floated !~ sgs
    security group delete sgs
    server delete --wait floated
    floating ip delete {fip}
    port delete fp
    subnet pool create --pool-prefix 10.250.0.0/16 --default-prefix-length 26 --default --share auto
    network auto allocated topology create --check-resources
    auto = network auto allocated topology create
    network show {auto} ~ auto_allocated_network
    network auto allocated topology delete
    subnet pool delete auto
    router remove subnet r3 insub
    router unset --external-gateway r3
    router delete r3
    network delete in1
    network delete ext
"""

TRUNKS_AND_SEGMENTS = """
    network create tn
    subnet create --network tn --subnet-range 192.0.2.0/24 ts
    network create sn
    parent = port create --network tn parent
    sub = port create --network sn child
    network trunk create --parent-port parent --subport port=child,segmentation-type=vlan,segmentation-id=7 t1 ~ 7
    network trunk list --long ~ t1
    network trunk show t1 ~ {parent}
    network subport list --trunk t1 ~ {sub}
    network trunk unset --subport child t1
    network trunk set --subport port=child,segmentation-type=vlan,segmentation-id=8 --description words t1
    network trunk show t1 ~ words
    port show parent ~ trunk_details
    ! port delete child
    network trunk delete t1
    port delete parent
    port delete child
    network delete tn
    network delete sn
    first = network create --provider-network-type vlan --provider-physical-network physnet1 --provider-segment 333 seg
    network segment list --network seg ~ 333
    second = network segment create --network seg --network-type vlan --physical-network physnet2 --segment 334 two ~ 334
    network segment set --name three --description words two
    network segment show three ~ words
    subnet create --network seg --network-segment three --subnet-range 192.0.2.0/24 segsub ~ {second}
    ! network segment delete three
    subnet delete segsub
    network segment delete three
    network delete seg
    availability zone list --network ~ nova
    network agent list --long ~ Open vSwitch agent
    network service provider list
    quota set --ports 55 demo
    quota show --network demo ~ 55
    quota list --network ~ 55
    quota delete --network demo
    quota show --network demo ~ 500
    extension show qos ~ Quality of Service
    network rbac list
"""

GROUPS = """
    ag = address group create --address 192.0.2.0/24 --description words ag1 ~ 192.0.2.0/24
    address group set --name ag2 --address 198.51.100.7 ag1
    address group list ~ 198.51.100.7/32
    address group unset --address 198.51.100.7/32 ag2
    address group show ag2 !~ 198.51.100.7
    security group create ruled
    ! security group rule create --egress --protocol any ruled ~ already exists
    security group rule create --protocol tcp --dst-port 1:65535 --remote-ip 192.0.2.9 ruled ~ 192.0.2.9/32
    security group rule create --ethertype IPv6 --protocol icmp ruled ~ ipv6-icmp
    security group rule create --protocol udp --dst-port 54 --remote-address-group ag2 ruled ~ {ag}
    security group rule list --protocol udp --ingress ruled ~ 54
    ! address group delete ag2
    security group delete ruled
    address group delete ag2
    network qos rule type show minimum_bandwidth ~ min_kbps
"""
