"""The APIs that a pod serves: one table for each release of Kafka whose versions it can speak (`muster.kafka.version`).

A pod chooses its table once, when it starts. Framing and ApiVersions are given it, so that what is announced is what is
read.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_coordinator.wire import k18_api_versions, k28_txn_offset_commit, k42_delete_groups
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.transaction_apis import TRANSACTION_APIS

Versions = dict[int, tuple[Api, int, bool]]
"""API key and version as one number, as in a request header -> the API, the version, whether that is flexible."""


class ServedApis:
    """`without_transactions`: the APIs of a pod whose cluster has no transaction coordinator; `all`: with one. Both by
    key. `versions`: what a request may be, with or without one."""

    __slots__ = ("all", "versions", "without_transactions")

    def __init__(self, apis: dict[int, Api]) -> None:
        self.without_transactions: tuple[Api, ...] = tuple(apis.values())
        self.all: tuple[Api, ...] = tuple([api for _, api in sorted((apis | TRANSACTION_APIS).items())])
        self.versions: Versions = _versions(self.all)


def _versions(apis: Iterable[Api]) -> Versions:
    return {
        api.key << 16 | version: (api, version, api.flexible(version))
        for api in apis
        for version in range(api.min_version, api.max_version + 1)
    }


NEW_IN_4_4: tuple[Api, ...] = (
    k18_api_versions.API_4_4,
    k28_txn_offset_commit.API_4_4,
    k42_delete_groups.API_4_4,
)
"""APIs of which Kafka 4.4 has a version more."""

KAFKA_4_3 = ServedApis(APIS)
KAFKA_4_4 = ServedApis(APIS | {api.key: api for api in NEW_IN_4_4})
