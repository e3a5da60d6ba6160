"""The treatment of each API key, and the highest version whose answer is known to be safe to pass on.

An allow-list: a key or version that is not here is neither announced nor carried, because its answers could name
addresses of brokers. Source: the message schemas of Kafka 4.3.1 and, for what 4.4 added, of 4.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Treatment(Enum):
    """The treatment of a request and its answer."""

    THROUGH = auto()
    """Both are cut through, unread."""
    PRODUCE = auto()
    """Request cut through (`acks` is looked at); the answer as well, with its leader hints rewritten (KIP-951)."""
    FETCH = auto()
    """Request cut through; the answer as well, with its leader hints rewritten (KIP-951)."""
    BROKERS = auto()
    """The answer names brokers, and is rewritten as a whole."""
    API_VERSIONS = auto()
    FIND_COORDINATOR = auto()
    GROUP = auto()
    """The request names a group, or several, and goes to the coordinator that serves them."""
    CONFIGS = auto()
    """Configs of groups at Muster are there; those of all other things are Kafka's."""
    LIST_GROUPS = auto()
    LIST_CONFIGS = auto()
    """The groups of the answer are those with configs at Kafka, and those at Muster."""
    SASL = auto()
    """Passes to the broker, where it is the broker that asks who the client is; who it says it is is read."""


@dataclass(frozen=True)
class Rule:
    """One API key. `first_flexible`: first version with tagged fields; needed where a header is read."""

    key: int
    name: str
    max_version: int
    treatment: Treatment = Treatment.THROUGH
    first_flexible: int | None = None

    def flexible(self, version: int) -> bool:
        return self.first_flexible is not None and version >= self.first_flexible


PRODUCE, FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS = 11, 12, 13, 14, 15, 16, 18
TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE, DESCRIBE_CLUSTER = 28, 42, 47, 60
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 33, 44, 74

_GROUP = Treatment.GROUP

# Lower than Kafka's, because:
# - Produce 12, EndTxn 5, TxnOffsetCommit 5: transaction version 2, where the group coordinator itself calls the
#   transaction coordinator, which Muster cannot do at brokers (KIP-890)
# - DescribeQuorum 2: addresses of controllers (KIP-853)
# - InitProducerId 6: two-phase commit (KIP-939)
# - not at all: share and streams groups (76 to 92), telemetry (71, 72), requests between brokers
_RULES = (
    Rule(PRODUCE, "Produce", 11, Treatment.PRODUCE, 9),
    Rule(FETCH, "Fetch", 18, Treatment.FETCH, 12),
    Rule(2, "ListOffsets", 11),
    Rule(METADATA, "Metadata", 13, Treatment.BROKERS, 9),
    Rule(OFFSET_COMMIT, "OffsetCommit", 10, _GROUP, 8),
    Rule(OFFSET_FETCH, "OffsetFetch", 10, _GROUP, 6),
    Rule(FIND_COORDINATOR, "FindCoordinator", 6, Treatment.FIND_COORDINATOR, 3),
    Rule(JOIN_GROUP, "JoinGroup", 9, _GROUP, 6),
    Rule(HEARTBEAT, "Heartbeat", 4, _GROUP, 4),
    Rule(LEAVE_GROUP, "LeaveGroup", 5, _GROUP, 4),
    Rule(SYNC_GROUP, "SyncGroup", 5, _GROUP, 4),
    Rule(DESCRIBE_GROUPS, "DescribeGroups", 6, _GROUP, 5),
    Rule(LIST_GROUPS, "ListGroups", 5, Treatment.LIST_GROUPS, 3),
    Rule(SASL_HANDSHAKE, "SaslHandshake", 1, Treatment.SASL),
    Rule(API_VERSIONS, "ApiVersions", 4, Treatment.API_VERSIONS, 3),
    Rule(19, "CreateTopics", 7),
    Rule(20, "DeleteTopics", 6),
    Rule(21, "DeleteRecords", 2),
    Rule(22, "InitProducerId", 5),
    Rule(23, "OffsetForLeaderEpoch", 4),
    Rule(24, "AddPartitionsToTxn", 5),
    Rule(25, "AddOffsetsToTxn", 4),
    Rule(26, "EndTxn", 4),
    Rule(27, "WriteTxnMarkers", 2),
    Rule(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 4, _GROUP, 3),
    Rule(29, "DescribeAcls", 3),
    Rule(30, "CreateAcls", 3),
    Rule(31, "DeleteAcls", 3),
    Rule(DESCRIBE_CONFIGS, "DescribeConfigs", 4, Treatment.CONFIGS, 4),
    Rule(ALTER_CONFIGS, "AlterConfigs", 2, Treatment.CONFIGS, 2),
    Rule(34, "AlterReplicaLogDirs", 2),
    Rule(35, "DescribeLogDirs", 5),
    Rule(SASL_AUTHENTICATE, "SaslAuthenticate", 2, Treatment.SASL, 2),
    Rule(37, "CreatePartitions", 3),
    Rule(38, "CreateDelegationToken", 3),
    Rule(39, "RenewDelegationToken", 2),
    Rule(40, "ExpireDelegationToken", 2),
    Rule(41, "DescribeDelegationToken", 3),
    Rule(DELETE_GROUPS, "DeleteGroups", 3, _GROUP, 2),
    Rule(43, "ElectLeaders", 2),
    Rule(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 1, Treatment.CONFIGS, 1),
    Rule(45, "AlterPartitionReassignments", 1),
    Rule(46, "ListPartitionReassignments", 0),
    Rule(OFFSET_DELETE, "OffsetDelete", 0, _GROUP),
    Rule(48, "DescribeClientQuotas", 1),
    Rule(49, "AlterClientQuotas", 1),
    Rule(50, "DescribeUserScramCredentials", 0),
    Rule(51, "AlterUserScramCredentials", 0),
    Rule(55, "DescribeQuorum", 1),
    Rule(57, "UpdateFeatures", 2),
    Rule(DESCRIBE_CLUSTER, "DescribeCluster", 2, Treatment.BROKERS, 0),
    Rule(61, "DescribeProducers", 0),
    Rule(64, "UnregisterBroker", 0),
    Rule(65, "DescribeTransactions", 0),
    Rule(66, "ListTransactions", 2),
    Rule(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 1, _GROUP, 0),
    Rule(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 1, _GROUP, 0),
    Rule(LIST_CONFIG_RESOURCES, "ListConfigResources", 1, Treatment.LIST_CONFIGS, 0),
    Rule(75, "DescribeTopicPartitions", 0),
)

RULES: dict[int, Rule] = {rule.key: rule for rule in _RULES}

HINTS_SINCE = {PRODUCE: 10, FETCH: 16}
"""First version whose answers carry addresses of new leaders in tag 0 (KIP-951)."""
