"""The leader's part in moves of groups: leases for gateways, and the steps of each move. Source: docs/adr/0048."""
