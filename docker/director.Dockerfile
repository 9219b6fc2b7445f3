# The director's image: the worker's files with another command, so that both always speak one protocol.
# Rule: no configuration and no secret is in it; both are mounted (see docker/compose.yaml).
ARG BASE=harness-worker:dev
FROM ${BASE}
USER 0:0
RUN mkdir -p /etc/harness /var/lib/harness /run/harness \
    && chown 1000:1000 /var/lib/harness /run/harness
LABEL org.opencontainers.image.title="harness director"
USER 1000:1000
WORKDIR /var/lib/harness
EXPOSE 8470
STOPSIGNAL SIGTERM
CMD ["harness", "director", "--config", "/etc/harness/harness.toml"]
