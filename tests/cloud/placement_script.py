"""Every command of osc-placement, as test_openstack_client.py runs it; the signs are those of `openstack_script`.

Each part stands with the microversions it is run at: the first that has it, those at which what is sent or answered
changes, and the newest. `{project}`, `{consumer}` and `{other}` (consumers) are fresh for each run.
"""

FIRST, NEWEST = "1.0", "1.39"

PROVIDERS = """
    rp = resource provider create o1 ~ o1
    resource provider list ~ {rp}
    resource provider list --name o1 ~ {rp}
    resource provider list --uuid {rp} ~ o1
    resource provider show {rp} ~ o1
    resource provider set --name o2 {rp} ~ o2
    ! resource provider create o2 ~ already exists
    resource provider create --uuid {other} o3 ~ {other}
    ! resource provider set --name o2 {other} ~ already exists
    resource provider delete {other}
    resource provider inventory set --resource VCPU=8 --resource VCPU:reserved=1 --resource VCPU:allocation_ratio=2 {rp} ~ 8
    resource provider inventory set --amend --resource VCPU:min_unit=2 --resource VCPU:max_unit=6 --resource VCPU:step_size=2 {rp}
    resource provider inventory set --amend --resource MEMORY_MB=512 {rp} ~ VCPU
    resource provider inventory set --dry-run --resource DISK_GB=77 {rp} ~ 77
    ! resource provider inventory show {rp} DISK_GB ~ No inventory of class DISK_GB
    resource provider inventory list {rp} ~ 512
    total:total = resource provider inventory show {rp} VCPU
    step:step_size = resource provider inventory show {rp} VCPU
    used:used = resource provider inventory show {rp} VCPU
    is {total} {step} {used} ~ 8 2 0
    resource provider inventory class set --total 9 --max_unit 4 {rp} VCPU ~ 9
    ! resource provider inventory set --resource NOTHING=1 {rp}
    resource provider usage show {rp} ~ VCPU
    resource provider inventory delete --resource-class MEMORY_MB {rp}
    ! resource provider inventory delete --resource-class MEMORY_MB {rp} ~ No inventory of class MEMORY_MB
    resource provider delete {rp}
    ! resource provider show {rp} ~ No resource provider with uuid {rp}
    ! resource provider delete {rp} ~ No resource provider with uuid {rp}
"""

AGGREGATES = """
    rp = resource provider create o1
    resource provider aggregate set --aggregate {agg1} --aggregate {agg2} {rp} ~ {agg2}
    resource provider aggregate list {rp} ~ {agg1}
    resource provider aggregate set --aggregate {agg2} {rp}
    resource provider aggregate set {rp} !~ {agg2}
    resource provider delete {rp}
"""

AGGREGATES_WITH_GENERATION = """
    rp = resource provider create o1
    g:generation = resource provider show {rp}
    resource provider aggregate set --aggregate {agg1} --aggregate {agg2} --generation {g} {rp} ~ {agg2}
    resource provider aggregate list {rp} ~ {agg1}
    ! resource provider aggregate set --aggregate {agg1} --generation {g} {rp} ~ generation
    g:generation = resource provider show {rp}
    resource provider aggregate set --generation {g} {rp}
    resource provider delete {rp}
"""

MEMBERS = """
    rp = resource provider create o1
    resource provider aggregate set --aggregate {agg1} {rp}
    resource provider list --member-of {agg1} ~ {rp}
    resource provider list --member-of {agg1},{agg2} ~ {rp}
    resource provider list --aggregate-uuid {agg1} ~ {rp}
    resource provider inventory set --aggregate --resource VCPU=5 {agg1} ~ {rp}
    resource provider inventory show {rp} VCPU ~ 5
    resource provider delete {rp}
    ! resource provider inventory set --aggregate --resource VCPU=5 {agg1} ~ No resource providers
"""

CLASSES = """
    resource class list ~ VCPU
    resource class create CUSTOM_GOLD
    ! resource class create CUSTOM_GOLD ~ already exists
    resource class show CUSTOM_GOLD ~ GOLD
    ! resource class delete VCPU ~ standard
    resource class delete CUSTOM_GOLD
    ! resource class show CUSTOM_GOLD ~ No such resource class
"""

SET_CLASS = """
    resource class set CUSTOM_SILVER
    resource class set CUSTOM_SILVER
    resource class delete CUSTOM_SILVER
"""

RESOURCES = """
    rp = resource provider create o1
    resource provider inventory set --resource VCPU=3 {rp}
    resource provider list --resource VCPU=3 --name o1 ~ {rp}
    resource provider delete {rp}
"""

DELETE_ALL = """
    rp = resource provider create o1
    resource provider inventory set --resource VCPU=3 --resource DISK_GB=3 {rp}
    resource provider inventory delete {rp}
    ! resource provider inventory show {rp} VCPU ~ No inventory of class VCPU
    resource provider delete {rp}
"""

TRAITS = """
    rp = resource provider create o1
    trait list ~ HW_CPU_X86_AVX2
    trait create CUSTOM_FAST
    trait show CUSTOM_FAST ~ FAST
    trait list --name in:CUSTOM_FAST,CUSTOM_SLOW ~ FAST
    trait list --name startswith:CUSTOM_FA ~ FAST
    resource provider trait set --trait CUSTOM_FAST --trait HW_CPU_X86_AVX2 {rp} ~ AVX2
    resource provider trait list {rp} ~ FAST
    trait list --associated ~ FAST
    ! resource provider trait set --trait CUSTOM_NEVER {rp} ~ No such trait
    ! trait delete CUSTOM_FAST ~ in use
    resource provider trait delete {rp}
    trait delete CUSTOM_FAST
    ! trait show CUSTOM_FAST ~ No such trait
    ! trait delete HW_CPU_X86_AVX2 ~ standard
    resource provider delete {rp}
"""

ALLOCATIONS = """
    rp = resource provider create o1
    resource provider inventory set --resource VCPU=8 --resource DISK_GB=8 {rp}
    resource provider allocation set --allocation rp={rp},VCPU=2,DISK_GB=3 {owner} {consumer} ~ VCPU
    resource provider allocation show {consumer} ~ {rp}
    resource provider show --allocations {rp} ~ {consumer}
    used:used = resource provider inventory show {rp} VCPU
    is {used} ~ 2
    ! resource provider allocation set --allocation rp={rp},VCPU=9 {owner} {other} ~ Unable to allocate
    ! resource provider inventory delete --resource-class VCPU {rp} ~ in use
    ! resource provider delete {rp} ~ has allocations
    resource provider allocation set --allocation rp={rp},VCPU=1 {owner} {consumer} ~ VCPU
    resource provider allocation delete {consumer}
    ! resource provider allocation delete {consumer} ~ No allocations
    used:used = resource provider inventory show {rp} VCPU
    is {used} ~ 0
    resource provider delete {rp}
"""

UNSET = """
    rp = resource provider create o1
    rp2 = resource provider create o2
    resource provider inventory set --resource VCPU=8 --resource DISK_GB=8 {rp}
    resource provider inventory set --resource VCPU=8 {rp2}
    resource provider allocation set --allocation rp={rp},VCPU=2,DISK_GB=3 --allocation rp={rp2},VCPU=1 {owner} {consumer}
    resource provider allocation unset --provider {rp} --resource-class DISK_GB {consumer} ~ {rp2}
    resource provider usage show {rp} ~ VCPU
    resource provider allocation unset --provider {rp2} {consumer} ~ {rp}
    resource provider allocation show {consumer} ~ {project}
    resource provider allocation unset {consumer}
    resource provider delete {rp}
    resource provider delete {rp2}
"""

USAGE = """
    rp = resource provider create o1
    resource provider inventory set --resource VCPU=8 {rp}
    resource provider allocation set --allocation rp={rp},VCPU=2 {owner} {consumer}
    resource usage show {project} ~ VCPU
    resource usage show --user-id {user} {project} ~ VCPU
    resource provider allocation delete {consumer}
    resource provider delete {rp}
"""

CANDIDATES = """
    rp = resource provider create o1
    resource class set CUSTOM_GOLD
    resource provider inventory set --resource CUSTOM_GOLD=4 --resource VCPU=4 {rp}
    allocation candidate list --resource CUSTOM_GOLD=2 --resource VCPU=1 ~ {rp}
    allocation candidate list --resource CUSTOM_GOLD=2 ~ CUSTOM_GOLD=0/4
    ! allocation candidate list --resource NOTHING=2 ~ NOTHING
    resource provider delete {rp}
    resource class delete CUSTOM_GOLD
"""

LIMITED = """
    allocation candidate list --resource VCPU=1 --limit 2 ~ VCPU=1
    ! allocation candidate list --resource VCPU=1 --limit 0
"""

REQUIRED = """
    allocation candidate list --resource VCPU=1 --required COMPUTE_NODE ~ COMPUTE_NODE
    ! allocation candidate list --resource VCPU=1 --required CUSTOM_NEVER ~ No such trait
"""

REQUIRED_PROVIDERS = """
    resource provider list --required COMPUTE_NODE ~ host1
"""

MEMBER_CANDIDATES = """
    rp = resource provider create o1
    g:generation = resource provider show {rp}
    resource provider aggregate set --aggregate {agg1} --generation {g} {rp}
    resource provider inventory set --resource VCPU=4 {rp}
    allocation candidate list --resource VCPU=1 --member-of {agg1},{agg2} ~ {rp}
    allocation candidate list --resource VCPU=1 --aggregate-uuid {agg1} ~ {rp}
    resource provider delete {rp}
"""

FORBIDDEN = """
    resource provider list --forbidden COMPUTE_STATUS_DISABLED ~ host1
    allocation candidate list --resource VCPU=1 --forbidden COMPUTE_STATUS_DISABLED ~ VCPU=1
"""

TREES = """
    rp = resource provider create o1
    child = resource provider create --parent-provider {rp} o1-child ~ {rp}
    resource provider list --in-tree {rp} ~ {child}
    ! resource provider delete {rp} ~ child
    alone = resource provider create o2
    resource provider set --name o2 --parent-provider {rp} {alone} ~ {rp}
    resource provider delete {alone}
    resource provider delete {child}
    resource provider delete {rp}
"""

MOVED = """
    rp = resource provider create o1
    child = resource provider create --parent-provider {rp} o1-child
    rp2 = resource provider create o2
    resource provider set --name o1-child --parent-provider {rp2} {child} ~ {rp2}
    ! resource provider set --name o2 --parent-provider {child} {rp2} ~ loop
    resource provider delete {child}
    resource provider delete {rp}
    resource provider delete {rp2}
"""

GROUPS = """
    allocation candidate list --group 1 --resource VCPU=1 --group 2 --resource MEMORY_MB=64 --group-policy none ~ VCPU=1
    allocation candidate list --resource DISK_GB=1 --group 1 --resource VCPU=1 --required COMPUTE_NODE ~ VCPU=1
"""

ANY_OF = """
    resource provider list --required COMPUTE_NODE,COMPUTE_STATUS_DISABLED ~ host1
    allocation candidate list --resource VCPU=1 --required COMPUTE_NODE,COMPUTE_STATUS_DISABLED ~ VCPU=1
"""

CONSUMER_TYPE = """
    rp = resource provider create o1
    resource provider inventory set --resource VCPU=8 {rp}
    resource provider allocation set --allocation rp={rp},VCPU=2 {owner} {consumer} ~ VOLUME
    resource provider allocation show {consumer} ~ VOLUME
    resource provider allocation delete {consumer}
    resource provider delete {rp}
"""

COMPUTE = """
    a:uuid = aggregate create o-agg
    host:uuid = resource provider list --name host1
    aggregate add host o-agg host1 ~ host1
    resource provider aggregate list {host} ~ {a}
    resource provider list --member-of {a} ~ host1
    allocation candidate list --resource VCPU=1 --member-of {a} ~ {host}
    rp = resource provider create o1
    g:generation = resource provider show {rp}
    resource provider aggregate set --aggregate {a} --generation {g} {rp} ~ {a}
    resource provider list --member-of {a} ~ o1
    aggregate show o-agg ~ {a}
    aggregate remove host o-agg host1
    resource provider aggregate list {host} !~ {a}
    resource provider list --member-of {a} !~ host1
    aggregate delete o-agg
    resource provider aggregate list {rp} ~ {a}
    resource provider delete {rp}
"""

PARTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("PROVIDERS", PROVIDERS, (FIRST, NEWEST)),
    ("ALLOCATIONS", ALLOCATIONS, (FIRST, "1.8", "1.12", "1.28", NEWEST)),
    ("AGGREGATES", AGGREGATES, ("1.1", "1.18")),
    ("AGGREGATES_WITH_GENERATION", AGGREGATES_WITH_GENERATION, ("1.19", NEWEST)),
    ("CLASSES", CLASSES, ("1.2", "1.7", NEWEST)),
    ("MEMBERS", MEMBERS, ("1.3", "1.18")),
    ("RESOURCES", RESOURCES, ("1.4", "1.20", NEWEST)),
    ("DELETE_ALL", DELETE_ALL, ("1.5", NEWEST)),
    ("TRAITS", TRAITS, ("1.6", NEWEST)),
    ("SET_CLASS", SET_CLASS, ("1.7", NEWEST)),
    ("USAGE", USAGE, ("1.9", "1.37", "1.38", NEWEST)),
    ("CANDIDATES", CANDIDATES, ("1.10", "1.12", "1.17", "1.29", NEWEST)),
    ("UNSET", UNSET, ("1.12", "1.28", NEWEST)),
    ("TREES", TREES, ("1.14", NEWEST)),
    ("LIMITED", LIMITED, ("1.16", NEWEST)),
    ("REQUIRED", REQUIRED, ("1.17", NEWEST)),
    ("REQUIRED_PROVIDERS", REQUIRED_PROVIDERS, ("1.18", NEWEST)),
    ("MEMBER_CANDIDATES", MEMBER_CANDIDATES, ("1.21", "1.24", NEWEST)),
    ("FORBIDDEN", FORBIDDEN, ("1.22", NEWEST)),
    ("GROUPS", GROUPS, ("1.25", "1.29", NEWEST)),
    ("MOVED", MOVED, ("1.37", NEWEST)),
    ("CONSUMER_TYPE", CONSUMER_TYPE, ("1.38", NEWEST)),
    ("ANY_OF", ANY_OF, ("1.39",)),
    ("COMPUTE", COMPUTE, ("1.21", NEWEST)),
)
