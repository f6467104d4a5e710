"""`GET /servers/{id}/topology` (2.78): the NUMA nodes that a server's guest has.

No driver makes NUMA nodes or chooses page sizes, so no guest has any, whatever its flavor or image asks: the list is empty, as Nova's for
a guest without them.
"""

from moorage.api.call import Call, Response
from moorage.api.compute.server_lookup import target_of, the_server
from moorage.api.routes import Params, Route

RULE = "compute:server:topology:"


async def topology(call: Call[None]) -> Response:
    server = await the_server(call, RULE + "index")
    call.allows(RULE + "host:index", target_of(server))
    return Response(200, {"nodes": [], "pagesize_kb": None})


ROUTES = (Route("GET", "/servers/{id}/topology", topology, params=Params()),)
