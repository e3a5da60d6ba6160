from __future__ import annotations

import pytest

from muster_cli.errors import CliError
from muster_cli.reshard.transactions import refuse_with_transactions


def test_cluster_with_transactions_is_not_resharded() -> None:
    refuse_with_transactions(["__consumer_offsets"])
    with pytest.raises(CliError, match="__transaction_state"):
        refuse_with_transactions(["__consumer_offsets", "__transaction_state"])
