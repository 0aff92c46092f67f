"""The wire: the one place that opens connections, with limits, retries and redaction."""

from guardmark.net.client import Endpoint, Services
from guardmark.net.exchange import Exchange
from guardmark.net.limits import ServiceLimits
from guardmark.net.service import ServiceUse

__all__ = ["Endpoint", "Exchange", "ServiceLimits", "ServiceUse", "Services"]
