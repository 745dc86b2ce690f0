# The operator's image. Every instruction is one that any builder knows, with BuildKit or without.
#
#   docker build --tag REPOSITORY:TAG .                       compiles the operator in a container
#
#   cp PATH/redis-ha-operator . &&                            takes a binary that was built on this machine, for
#   docker build --tag REPOSITORY:TAG --target prebuilt .     this architecture and a glibc no newer than Debian's
ARG DEBIAN=bookworm
ARG RUST=1.89

FROM debian:${DEBIAN}-slim AS runtime
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="redis-ha-operator" \
      org.opencontainers.image.description="Keeps Redis on Kubernetes writable when its master dies" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/redis-ha-operator:/usr/local/bin:/usr/bin:/bin
# It writes no file, so the root file system may be read-only. A number, so that runAsNonRoot can be checked.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/opt/redis-ha-operator/redis-ha-operator"]
CMD ["run"]

FROM runtime AS prebuilt
# A pattern, since it may match nothing: without BuildKit every build comes through here.
COPY LICENSE redis-ha-operato[r] /opt/redis-ha-operator/

FROM rust:${RUST}-slim-${DEBIAN} AS build
WORKDIR /build
# The dependencies first, with empty packages around them: this layer stays until a manifest changes.
COPY Cargo.toml Cargo.lock ./
COPY e2e/world/Cargo.toml e2e/world/
COPY e2e/scenarios/Cargo.toml e2e/scenarios/
COPY e2e/conformance/Cargo.toml e2e/conformance/
RUN mkdir -p src e2e/world/src e2e/scenarios/src e2e/conformance/src e2e/conformance/tests/conformance \
 && echo 'fn main() {}' >src/main.rs \
 && touch src/lib.rs e2e/world/src/lib.rs e2e/scenarios/src/lib.rs \
          e2e/conformance/src/lib.rs e2e/conformance/tests/conformance/main.rs \
 && cargo build --locked --release --package redis-ha-operator
COPY src src
# What is copied may be older than the empty files that were built.
RUN touch src/main.rs src/lib.rs \
 && cargo build --locked --release --package redis-ha-operator

FROM runtime
COPY LICENSE /opt/redis-ha-operator/
COPY --from=build /build/target/release/redis-ha-operator /opt/redis-ha-operator/
