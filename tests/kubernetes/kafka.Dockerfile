# A Kafka broker for the tests on Kubernetes: this machine's Java and the jars that Maven has fetched (see hack/image).
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE}
COPY java /opt/java
COPY libs /opt/kafka/libs
ENV PATH=/opt/java/bin:/usr/local/bin:/usr/bin:/bin CLASSPATH=/opt/kafka/libs/*
USER 10001:10001
CMD ["java", "kafka.Kafka", "/tmp/kafka.properties"]
