# AMD: torch brings ROCm's libraries; the base image adds the tools that look at the card. The kernel driver is the host's.
# Everything that changes is an argument, set by docker/targets.yml; nothing here needs BuildKit.
ARG BASE_IMAGE
FROM ${BASE_IMAGE} AS system
ARG BASE_PYTHON=python3
USER root
COPY install.sh ca-bundle.crt* /build/
RUN sh /build/install.sh system && rm -rf /build

# Wheels, certificates and package settings end with this stage.
FROM system AS builder
LABEL io.warpwave.stage=builder
ARG BASE_PYTHON=python3
ARG TORCH=index
ARG TORCH_VERSION
ARG TRITON_VERSION
ARG TRITON_INDEX
ARG TOOLCHAIN
ARG TORCH_INDEX
COPY . /build/
RUN sh /build/install.sh packages

FROM system
COPY --from=builder /opt/warpwave /opt/warpwave
ENV PATH=/opt/warpwave/bin:$PATH
WORKDIR /tmp
USER 65534:65534
ENTRYPOINT []
CMD ["python3"]
