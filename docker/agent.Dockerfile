# A coding agent on top of any base, as its own image, so that a change of ours never ships it again.
# Rule: nothing is fetched here; scripts/build-image.sh puts verified files into the build context.
ARG BASE
FROM ${BASE}
USER 0:0
ARG AGENT
COPY files/ /opt/agents/
# A program that the base brings itself stays the one that is found.
RUN for program in /opt/agents/${AGENT}/bin/* /opt/agents/${AGENT}/tools/*; do \
      name="$(basename "$program")"; \
      [ ! -x "$program" ] || command -v "$name" >/dev/null || ln -s "$program" "/usr/local/bin/$name" || exit 1; \
    done
ARG AGENT_VERSION
LABEL harness.agent="${AGENT} ${AGENT_VERSION}"
