"""Who somebody is, and what they may do: identities, ACLs, credentials.

`acls` and `scram` are pure. Imports nothing of ours but `errors`.
"""
