# One image for all: muster-coordinator (a pod), muster-operator and muster-gateway; and muster, for Jobs that make backups.
# `make image` prepares the context (build/image, see hack/image): the locked wheels unpacked, and Muster itself; so building
# needs no network, and any builder does.
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE}

# Compiled here, because the process can write nowhere but into its volume, and a pod that restarts has no time to compile.
# Dependencies first: these layers change with uv.lock only.
COPY dependencies /opt/muster/lib
RUN python3 -m compileall -q /opt/muster/lib && install -d -o 10001 -g 10001 /var/lib/muster
COPY muster /opt/muster/lib
# The import says now, not when a pod starts, that a compiled module does not fit this base image.
RUN python3 -m compileall -q /opt/muster/lib/muster_* && \
  PYTHONPATH=/opt/muster/lib python3 -c "import muster_coordinator.process.compose"
COPY bin /usr/local/bin

# USER, HOME: a pod may run under any uid; libraries that ask for the user's name or home find no such uid in /etc/passwd,
# and only some container runtimes (runc, not crun) set HOME for it.
ENV PYTHONPATH=/opt/muster/lib PYTHONUNBUFFERED=1 USER=muster HOME=/var/lib/muster MUSTER_DATA_DIR=/var/lib/muster
USER 10001:10001
WORKDIR /var/lib/muster
VOLUME /var/lib/muster
EXPOSE 9092 9640
CMD ["muster-coordinator"]
