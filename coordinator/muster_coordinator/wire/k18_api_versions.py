"""ApiVersions (18), versions 0 to 4 and with Kafka 4.4 to 5, flexible from 3. Its response header is always v0.

- v1: throttle_time_ms in the response
- v2: as v1; a throttled answer is sent at once (KIP-219)
- v3: flexible; client_software_name and client_software_version (KIP-511); features in tagged fields (KIP-584)
- v4: as v3; a supported feature may have minimum version 0 (KIP-1022)
- v5: cluster_id and node_id, of the server that the client means to ask; another one answers REBOOTSTRAP_REQUIRED
  (KIP-1242)

The only feature is `transaction.version`, where there is a transaction coordinator: a client then takes transaction
version 2 (KIP-890).
"""

from __future__ import annotations

from msgspec.structs import replace

from muster_coordinator.requests.cluster import NO_NODE, ApiVersionsRequest, ApiVersionsResponse
from muster_coordinator.wire.api import Api, RequestHeader, guarded
from muster_coordinator.wire.codec import Reader, Writer

KEY = 18
_SUPPORTED, _EPOCH, _FINALIZED = 0, 1, 2  # tags
_LEVEL_0_SINCE = 4
_NAMES_SERVER_SINCE = 5

FLEXIBLE_KEY_BYTES = 7
"""Size of one API in an answer of a flexible version: three numbers, and no tagged fields."""


@guarded
def decode_request(header: RequestHeader, frame: bytes, client_host: str) -> ApiVersionsRequest:
    if header.api_version <= 2:
        return ApiVersionsRequest()
    reader = Reader(frame, header.body_position, header.flexible)
    name, version = reader.string(), reader.string()
    cluster_id, node_id = None, NO_NODE
    if header.api_version >= _NAMES_SERVER_SINCE:
        cluster_id, node_id = reader.nullable_string(), reader.int32()
    request = ApiVersionsRequest(name, version, cluster_id, node_id)
    reader.tagged_fields()
    return request


def encode_response(version: int, response: ApiVersionsResponse) -> bytes:
    writer = Writer(API.flexible(version))

    def api_key(value: tuple[int, int, int]) -> None:
        for number in value:
            writer.int16(number)
        writer.tagged_fields()

    writer.int16(response.error_code)
    writer.array(response.api_keys, api_key)
    if version >= 1:
        writer.int32(0)
    return writer.done(_features(version, response.features) if response.features else ())


def _features(version: int, features: tuple[tuple[str, int], ...]) -> tuple[tuple[int, bytes], ...]:
    """SupportedFeatures, FinalizedFeaturesEpoch and FinalizedFeatures. The levels never change while a pod runs, so the
    epoch, by which a client tells what is newer, is always the same."""
    return (
        (_SUPPORTED, _levels(features if version >= _LEVEL_0_SINCE else ())),
        (_EPOCH, (1).to_bytes(8, "big")),
        (_FINALIZED, _levels(features, finalized=True)),
    )


def _levels(features: tuple[tuple[str, int], ...], *, finalized: bool = False) -> bytes:
    writer = Writer(flexible=True)

    def feature(value: tuple[str, int]) -> None:
        """Supported: the lowest and the highest level; finalized: the present one, twice."""
        name, level = value
        writer.string(name)
        writer.int16(level if finalized else 0)
        writer.int16(level)
        writer.tagged_fields()

    writer.array(features, feature)
    return writer.done()[:-1]  # a tagged field of an array ends with its last element


def decode_response(reader: Reader) -> tuple[tuple[int, int, int], ...]:
    """(key, lowest, highest version) of each API, of an answer of version 0. Raises what `Reader` raises."""
    reader.int16()  # error code: there is none in this version
    return reader.array(lambda: (reader.int16(), reader.int16(), reader.int16()))


API = Api(KEY, "ApiVersions", 0, 4, 3, decode_request, encode_response)
API_4_4 = replace(API, max_version=5)
