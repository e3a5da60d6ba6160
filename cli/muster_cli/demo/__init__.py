"""`muster demo`: the main job, live, on a local cluster of its own with real Kafka clients (confluent-kafka).

scenario: the story and what it checks. cluster: `muster local up` as a child. consumers: the clients. screen: output.
"""
