# Muster as an update might be, for tests: it writes a record of a version that no other knows, and has a defect.
ARG BASE=docker.io/library/muster:local
FROM ${BASE}
USER root
COPY later.py /tmp/later.py
RUN python3 /tmp/later.py && rm /tmp/later.py
USER 10001:10001
