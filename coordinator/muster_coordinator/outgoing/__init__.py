"""Connections to servers of Kafka's protocol that others run, or that ask who comes: TLS, logins, files that are read
again.
"""
