"""The commands of test_openstack_client.py about networks, identity and images, and those of a user without rights.

The form of a line is described in openstack_script.py.
"""

NETWORK = """
    net = network create --description words n1
    network list --long ~ n1
    network show n1 ~ words
    network set --name n2 --disable n1
    network set --enable n2
    subnet create --network n2 --subnet-range 192.0.2.0/24 --dns-nameserver 192.0.2.53 sub ~ 192.0.2.1
    subnet list --network n2 ~ sub
    subnet show sub ~ 192.0.2.53
    subnet set --no-dhcp --name sub2 sub
    port create --network n2 --fixed-ip subnet=sub2,ip-address=192.0.2.77 --tag red p2 ~ 192.0.2.77
    port list --network n2 --long ~ p2
    port list --tags red ~ p2
    port show p2 ~ 192.0.2.77
    port set --name p3 --description words --disable p2
    port unset --fixed-ip subnet=sub2,ip-address=192.0.2.77 p3
    security group create --description words sg
    security group list ~ sg
    security group show sg ~ words
    rule = security group rule create --protocol tcp --dst-port 22:23 --remote-ip 192.0.2.0/24 sg ~ 22
    security group rule list sg ~ tcp
    security group rule show {rule} ~ 192.0.2.0/24
    port set --security-group sg p3
    port unset --security-group sg p3
    security group rule delete {rule}
    security group set --name sg2 sg
    security group delete sg2
    router create r1
    router add subnet r1 sub2
    router show r1 ~ 192.0.2.1
    router remove subnet r1 sub2
    router delete r1
    port delete p3
    subnet delete sub2
    network delete n2
    network segment list ~ rack-b
    network agent list
    extension list --network ~ segment
    quota show --network ~ ports
    ip availability list ~ private
    network rbac list
    subnet pool list
    network qos policy list
    floating ip list
    network trunk list
"""
IDENTITY = """
    t = trust create --project admin --role member admin demo ~ member
    trust list ~ {t}
    trust show {t} ~ member
    trust delete {t}
    ! trust show {t}
    domain create --description words d1
    domain list ~ d1
    domain show d1 ~ words
    project create --domain d1 --description words pr1
    project list --domain d1 ~ pr1
    project show --domain d1 pr1 ~ words
    project set --domain d1 --name pr2 --property a=b pr1
    user create --domain d1 --project pr2 --project-domain d1 --password secret --email u@example.org u1
    user list --domain d1 --long ~ u1
    user show --domain d1 u1 ~ u@example.org
    user set --domain d1 --name u2 --disable u1
    user set --domain d1 --enable u2
    gr = group create --domain d1 gr1
    group list --domain d1 ~ gr1
    group add user --group-domain d1 --user-domain d1 gr1 u2
    group contains user --group-domain d1 --user-domain d1 gr1 u2
    user list --group {gr} ~ u2
    group set --domain d1 --description words gr1
    group show --domain d1 gr1 ~ words
    role create ro1
    role list ~ ro1
    role show ro1 ~ ro1
    role set --name ro2 ro1
    role add --user u2 --user-domain d1 --project pr2 --project-domain d1 member
    role add --group gr1 --group-domain d1 --project pr2 --project-domain d1 ro2
    role assignment list --user u2 --user-domain d1 --names ~ member
    role assignment list --effective --project pr2 --project-domain d1 --names ~ ro2
    role remove --group gr1 --group-domain d1 --project pr2 --project-domain d1 ro2
    role remove --user u2 --user-domain d1 --project pr2 --project-domain d1 member
    implied role create --implied-role ro2 reader
    implied role list ~ ro2
    implied role delete --implied-role ro2 reader
    role delete ro2
    group remove user --group-domain d1 --user-domain d1 gr1 u2
    group delete --domain d1 gr1
    user delete --domain d1 u2
    project delete --domain d1 pr2
    domain set --disable d1
    domain delete d1
    service create --name sv --description words thing
    service list --long ~ thing
    service show sv ~ words
    service set --name sv2 sv
    region create --description words North
    region list ~ North
    region set --description other North
    region show North ~ other
    ep = endpoint create --region North thing public http://example.org/
    endpoint list --service thing ~ example.org
    endpoint show {ep} ~ North
    endpoint set --url http://example.com/ {ep}
    endpoint delete {ep}
    region delete North
    service delete sv2
    catalog list ~ compute
    catalog show compute ~ nova
    token issue ~ project_id
    application credential create --role member --secret hidden ac
    application credential list ~ ac
    application credential show ac ~ ac
    application credential delete ac
    registered limit list
    limit list
    versions show ~ identity
"""
IMAGE = """
    im = image create --disk-format raw --container-format bare --file {data} --property os_distro=ubuntu i1 ~ active
    image list ~ i1
    image list --long --property os_distro=ubuntu ~ i1
    image list --private
    image show i1 ~ ubuntu
    image show {im} ~ raw
    image set --name i2 --min-disk 1 --tag red --property a=b i1
    image list --tag red ~ i2
    image unset --tag red --property a i2
    image save --file {saved} i2
    image set --shared i2
    image add project i2 demo
    image member list i2
    image remove project i2 demo
    image set --deactivate i2
    image set --activate i2
    image set --protected i2
    ! image delete i2
    image set --unprotected i2
    image task list
    image metadef namespace create --display-name One --public NS1 ~ One
    image metadef namespace list ~ NS1
    image metadef namespace set --description words NS1
    image metadef namespace show NS1 ~ words
    image metadef object create --namespace NS1 box ~ box
    image metadef object update --name crate NS1 box
    image metadef object list NS1 ~ crate
    image metadef object delete NS1 crate
    image metadef property create --name cpus --title vCPUs --type integer --schema "{{}}" NS1 ~ cpus
    image metadef property show NS1 cpus ~ vCPUs
    image metadef property list NS1 ~ cpus
    image metadef property delete NS1 cpus
    image metadef resource type list ~ OS::Nova::Flavor
    image metadef resource type association create NS1 OS::Nova::Flavor
    image metadef resource type association list NS1 ~ OS::Nova::Flavor
    image metadef resource type association delete NS1 OS::Nova::Flavor
    image metadef namespace delete NS1
    ! image metadef namespace show NS1
    image stores list
    image import info
    image delete i2
"""
PLAIN_USER = """
    token issue ~ project_id
    catalog list ~ compute
    network list ~ private
    image list ~ tiny
    flavor list ~ m1.tiny
    s = server create --image tiny --flavor m1.nano --network private --wait mine ~ ACTIVE
    server list --long ~ mine
    server show mine ~ hostId
    ! server list --all-projects
    ! hypervisor list
    ! compute service list
    ! aggregate create nope
    ! flavor create --ram 1 --disk 1 --vcpus 1 nope
    server delete --wait mine
    keypair create --public-key {pubkey} k2
    keypair delete k2
    server group create --policy affinity g2
    server group delete g2
    quota show ~ instances
    limits show --absolute ~ max_total_instances
    availability zone list ~ nova
    security group list ~ default
    application credential create ac2
    application credential delete ac2
    ! user list
    ! project create nope
    usage show
"""
