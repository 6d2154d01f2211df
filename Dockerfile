# An image that serves a bundle without torch:
#   docker build -t thresher-serve .
#   docker run --rm --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 -v "$PWD/clicks-small:/bundle:ro" thresher-serve
# Another model than lr, fm, deepfm and autoint needs torch: --build-arg TORCH=torch==2.13.0
FROM python:3.11-slim-bookworm AS build

ARG TORCH=""
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

WORKDIR /build
RUN python -m venv /venv
COPY constraints.txt requirements-serve.txt ./
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt -r requirements-serve.txt \
    && if [ -n "$TORCH" ]; then /venv/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH"; fi
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM python:3.11-slim-bookworm

RUN useradd --system --uid 10001 --no-create-home thresher
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/tmp/numba \
    OMP_NUM_THREADS=1
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/ready', timeout=2)"]
ENTRYPOINT ["thresher", "serve"]
CMD ["/bundle", "--host", "0.0.0.0"]
