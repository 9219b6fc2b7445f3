# The base of the worker image where a registry can be reached; elsewhere scripts/build-image.sh makes the
# same thing with debootstrap. Rule: only what a worker needs to run; a toolchain comes with --from.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git python3 \
    && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
