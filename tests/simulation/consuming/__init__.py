"""Consumers of the new protocol (KIP-848), what they may subscribe to, and what must hold for them."""
