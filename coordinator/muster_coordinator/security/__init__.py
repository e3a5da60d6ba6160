"""Who somebody is, and what they may do: identities, ACLs, credentials; TLS, and the names that certificates carry.

`acls` is pure. Imports nothing of ours.
"""
