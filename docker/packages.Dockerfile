# What a package needs beside torch and Triton, on top of a target's image: `--requirements`, `--install`.
# The build has a network, the run has none. Sources, wheels, certificates and settings end with the first stage.
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS builder
LABEL io.warpwave.stage=builder
ARG PYTHON=python3
USER root
COPY . /build/
RUN cd /build && "$PYTHON" -m installing /build /opt/packages

FROM ${BASE_IMAGE}
COPY --from=builder /opt/packages /opt/packages
ENV PATH=/opt/packages/bin:$PATH
