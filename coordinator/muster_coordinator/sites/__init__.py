"""Claims in a store that several sites share: they say who of them answers clients (docs/adr/0056). Leases on them."""
