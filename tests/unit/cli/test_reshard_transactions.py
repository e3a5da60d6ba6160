from __future__ import annotations

import pytest

from muster_cli.errors import CliError
from muster_cli.reshard.transactions import refuse_with_transactions

BOTH = ["__consumer_offsets", "__transaction_state"]


def test_groups_of_a_cluster_with_transactions_are_not_resharded() -> None:
    refuse_with_transactions("__consumer_offsets", ["__consumer_offsets"])
    refuse_with_transactions("__transaction_state", BOTH)
    with pytest.raises(CliError, match="__transaction_state"):
        refuse_with_transactions("__consumer_offsets", BOTH)
