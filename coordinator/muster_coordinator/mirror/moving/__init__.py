"""The move of a group from Kafka to Muster while it runs. No I/O.

Source: docs/adr/0048.
"""
