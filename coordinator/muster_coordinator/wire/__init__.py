"""Kafka's protocol: framing, headers, one module for each API key; `apis` lists them."""
