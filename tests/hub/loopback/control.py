"""The log and the faults, for tests only, and what clients ask for on the side: harnesses and telemetry."""

from loopback.faults import Fault
from loopback.messages import Reply, Request
from loopback.routes import route

PREFIX = "/__loopback__/"


@route("GET", f"{PREFIX}log", storage=True)
def read_log(request: Request) -> Reply:
    return Reply(list(request.hub.log))


@route("DELETE", f"{PREFIX}log", storage=True)
def take_log(request: Request) -> Reply:
    """The requests since the last time."""
    taken, request.hub.log[:] = list(request.hub.log), []
    return Reply(taken)


@route("POST", f"{PREFIX}faults", storage=True)
def set_faults(request: Request) -> Reply:
    """From now on these faults, and none of those before."""
    request.hub.faults[:] = [Fault(**words) for words in request.json]
    return Reply({})


@route("GET", "/api/agent-harnesses")
def agent_harnesses(request: Request) -> Reply:
    return Reply({"standardEnvVars": [], "harnesses": {}})


@route("GET", "/api/telemetry/{path}")
def telemetry(request: Request) -> Reply:
    return Reply()
