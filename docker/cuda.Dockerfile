# NVIDIA: torch brings CUDA's libraries and Triton brings ptxas, so a small base image is enough; the driver comes from the host.
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
