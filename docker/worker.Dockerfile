# The worker image: any base with git, Python and CA certificates, and the harness in a folder of its own.
# Rule: built without network. No pip is needed or left here; the toolchain's own Python stays untouched,
# because /opt/harness is a virtual environment that only `harness` enters.
ARG BASE
FROM ${BASE}
USER 0:0
ARG PYTHON=python3
ARG SITE=/opt/harness/lib/python3.11/site-packages
RUN "${PYTHON}" -m venv --without-pip /opt/harness
# Libraries first: they change seldom, the harness often.
COPY libraries/ ${SITE}/
RUN /opt/harness/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "${SITE}"
COPY program/ /opt/harness/app/
RUN /opt/harness/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/harness/app \
    && echo /opt/harness/app > "${SITE}/harness.pth" \
    && printf '#!/opt/harness/bin/python\nimport sys\n\nfrom harness.cli import main\n\nsys.exit(main())\n' \
        > /opt/harness/bin/harness \
    && chmod 0755 /opt/harness/bin/harness \
    && mkdir -p /usr/local/bin /workspace \
    && ln -sf /opt/harness/bin/harness /usr/local/bin/harness \
    && if ! grep -q '^[^:]*:[^:]*:1000:' /etc/passwd; then \
         echo 'worker:x:1000:1000:harness worker:/workspace:/bin/sh' >> /etc/passwd; \
       fi \
    && chown 1000:1000 /workspace
ARG BUILD_KEY
ARG VERSION
LABEL harness.build-key="${BUILD_KEY}" \
      org.opencontainers.image.title="harness worker" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# The director starts it as its own user, with a read-only root and no network; this is for starts by hand.
USER 1000:1000
WORKDIR /workspace
ENTRYPOINT []
CMD ["harness", "worker"]
