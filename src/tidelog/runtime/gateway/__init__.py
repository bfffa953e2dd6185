"""What clients see of a cluster, on every storage node: any of them answers any request."""

from tidelog.runtime.gateway.gateway import Gateway
from tidelog.runtime.gateway.options import GatewayOptions

__all__ = ["Gateway", "GatewayOptions"]
