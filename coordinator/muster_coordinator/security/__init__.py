"""Identities, and what they may do: ACLs, credentials; TLS, and the names that certificates carry.

`acls` is pure. Imports nothing of ours.
"""
