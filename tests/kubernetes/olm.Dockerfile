# The Operator Lifecycle Manager's operator, for tests: the program alone, as it is linked statically.
FROM scratch
COPY olm /bin/olm
USER 1001:1001
ENTRYPOINT ["/bin/olm"]
