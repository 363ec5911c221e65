# The names of the package for type checkers; `__init__.py` loads them when they are used.

from leveret.client.clusters.blocking import BlockingConsumer as BlockingConsumer
from leveret.client.clusters.blocking import BlockingProducer as BlockingProducer
from leveret.client.clusters.consumer import ClusterConsumer as Consumer
from leveret.client.clusters.message import ClusterMessage as ClusterMessage
from leveret.client.clusters.outcome import ClusterDeleted as ClusterDeleted
from leveret.client.clusters.outcome import ClusterMismatch as ClusterMismatch
from leveret.client.clusters.outcome import HandlerStopped as HandlerStopped
from leveret.client.clusters.outcome import MemberInUse as MemberInUse
from leveret.client.clusters.outcome import Outcome as Outcome
from leveret.client.clusters.producer import Acknowledgement as Acknowledgement
from leveret.client.clusters.producer import DeliveryStatus as DeliveryStatus
from leveret.client.clusters.producer import Outgoing as Outgoing
from leveret.client.clusters.producer import Producer as Producer

__version__: str

__all__ = [
    "Acknowledgement",
    "BlockingConsumer",
    "BlockingProducer",
    "ClusterDeleted",
    "ClusterMessage",
    "ClusterMismatch",
    "Consumer",
    "DeliveryStatus",
    "HandlerStopped",
    "MemberInUse",
    "Outcome",
    "Outgoing",
    "Producer",
    "__version__",
]
