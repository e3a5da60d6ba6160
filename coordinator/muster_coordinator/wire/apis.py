"""The APIs in the versions of Kafka 4.3: the one list that `served`, `docs/protocol.md` and the tests go by."""

from __future__ import annotations

import re
from collections.abc import Iterable

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import NO_NODE, ApiVersionsRequest, ApiVersionsResponse
from muster_coordinator.wire import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k18_api_versions,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k36_sasl_authenticate,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k48_describe_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k60_describe_cluster,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k76_share_group_heartbeat,
    k88_streams_group_heartbeat,
)
from muster_coordinator.wire.api import Api

MODULES = (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k18_api_versions,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k36_sasl_authenticate,
    k42_delete_groups,
    k44_incremental_alter_configs,
    k47_offset_delete,
    k48_describe_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k60_describe_cluster,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k76_share_group_heartbeat,
    k88_streams_group_heartbeat,
)

APIS: dict[int, Api] = {module.API.key: module.API for module in MODULES}

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions_response(
    request: ApiVersionsRequest, apis: Iterable[Api] = APIS.values(), features: tuple[tuple[str, int], ...] = ()
) -> ApiVersionsResponse:
    """The served versions, or INVALID_REQUEST for a client that names its software as KIP-511 does not allow it, or
    half of a server (KIP-1242)."""
    if (request.cluster_id is None) is not (request.node_id == NO_NODE):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    for text in (request.client_software_name, request.client_software_version):
        if text is not None and not _SOFTWARE.fullmatch(text):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(0, tuple([(api.key, api.min_version, api.max_version) for api in apis]), features)
