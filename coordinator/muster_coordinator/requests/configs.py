"""Requests and responses about the configs of resources, free of protocol versions. See `requests.groups`."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class _Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Base of all messages: immutable, cheap to build, not tracked by the garbage collector (messages hold no
    cycles)."""


class ConfigResourceType(IntEnum):
    """Source: ConfigResource.Type. Requests have any number."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """Source: AlterConfigOp.OpType (KIP-339). Requests have any number."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Source: DescribeConfigsResponse.ConfigSource."""

    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """Source: DescribeConfigsResponse.ConfigType."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3


# -- DescribeConfigs (32) ---------------------------------------------------------------------------------------------


class ConfigResource(_Message, frozen=True):
    """`keys` None: all of them."""

    resource_type: int
    name: str
    keys: tuple[str, ...] | None


class DescribeConfigsRequest(_Message, frozen=True):
    resources: tuple[ConfigResource, ...]
    include_synonyms: bool = False
    include_documentation: bool = False  # v3+


class ConfigSynonym(_Message, frozen=True):
    name: str
    value: str | None
    source: int


class DescribedConfig(_Message, frozen=True):
    """`config_type` and `documentation`: v3+."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    config_type: int = ConfigType.UNKNOWN
    documentation: str | None = None


class DescribedResource(_Message, frozen=True):
    resource_type: int
    name: str
    error_code: int = 0
    error_message: str | None = None
    configs: tuple[DescribedConfig, ...] = ()


class DescribeConfigsResponse(_Message, frozen=True):
    results: tuple[DescribedResource, ...]


# -- AlterConfigs (33) and IncrementalAlterConfigs (44) ---------------------------------------------------------------


class ConfigChange(_Message, frozen=True):
    """`operation`: an AlterOperation, or any other number of a request."""

    name: str
    operation: int
    value: str | None


class ResourceChanges(_Message, frozen=True):
    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]


class AlterConfigsRequest(_Message, frozen=True):
    """The configs of each resource, which replace all that were set for it. Each change is a SET."""

    resources: tuple[ResourceChanges, ...]
    validate_only: bool = False


class IncrementalAlterConfigsRequest(_Message, frozen=True):
    resources: tuple[ResourceChanges, ...]
    validate_only: bool = False


class AlteredResource(_Message, frozen=True):
    resource_type: int
    name: str
    error_code: int = 0
    error_message: str | None = None


class AlterConfigsResponse(_Message, frozen=True):
    """The answer to both."""

    results: tuple[AlteredResource, ...]


# -- ListConfigResources (74) -----------------------------------------------------------------------------------------


class ListConfigResourcesRequest(_Message, frozen=True):
    """`resource_types`: none for all of them. Each shard is asked the same and answers for its own groups."""

    resource_types: tuple[int, ...] = ()


class ListedResource(_Message, frozen=True):
    resource_type: int
    name: str


class ListConfigResourcesResponse(_Message, frozen=True):
    error_code: int = 0
    resources: tuple[ListedResource, ...] = ()


# -- One group, as its shard is asked ---------------------------------------------------------------------------------


class DescribeGroupConfigsRequest(_Message, frozen=True):
    """One group of a DescribeConfigsRequest; the answer is a DescribedResource. `keys` None or empty: all of them."""

    group_id: str
    keys: tuple[str, ...] | None = None
    include_synonyms: bool = False
    include_documentation: bool = False


class AlterGroupConfigsRequest(_Message, frozen=True):
    """One group of an AlterConfigsRequest or an IncrementalAlterConfigsRequest; the answer is an AlteredResource.
    `replaces`: what is not named is taken away, as by the first of them."""

    group_id: str
    changes: tuple[ConfigChange, ...]
    validate_only: bool = False
    replaces: bool = False
