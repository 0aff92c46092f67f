# docker build -t guardmark .
# docker run --rm --read-only --tmpfs /tmp -v "$PWD:/work" --user "$(id -u)" guardmark run bench.yaml
FROM python:3.13.9-slim-trixie AS build
WORKDIR /source
COPY requirements/run.lock requirements/run.lock
RUN python -m venv /opt/guardmark \
 && /opt/guardmark/bin/pip install --no-cache-dir --require-hashes -r requirements/run.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/guardmark/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.13.9-slim-trixie
COPY --from=build /opt/guardmark /opt/guardmark
# Nothing is written outside of /work (runs) and /tmp, so the root may be read-only.
ENV PATH=/opt/guardmark/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1
WORKDIR /work
RUN chown 65532:65532 /work
USER 65532:65532
HEALTHCHECK --interval=5m --timeout=30s CMD ["guardmark", "doctor"]
ENTRYPOINT ["guardmark"]
CMD ["--help"]
