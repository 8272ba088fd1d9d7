"""What clients ask on the side: `GET /api/agent-harnesses` and `HEAD /api/telemetry/…`."""

from loopback.messages import Reply, Request
from loopback.routes import route


@route("GET", "/api/agent-harnesses")
def agent_harnesses(request: Request) -> Reply:
    return Reply({"standardEnvVars": [], "harnesses": {}})


@route("GET", "/api/telemetry/{path}")
def telemetry(request: Request) -> Reply:
    return Reply()
