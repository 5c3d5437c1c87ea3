# The trainer. Build from the repository's root.
#
# On Linux the default index holds the CUDA build of torch, which runs on CPUs too. For the much smaller CPU build set
# TORCH_INDEX to an index that holds it.

FROM python:3.12-slim AS build
ARG TORCH_INDEX=""
WORKDIR /source
COPY pyproject.toml README.md constraints.txt ./
COPY contracts contracts
COPY service service
COPY trainer trainer
COPY cli cli
COPY migrations migrations
COPY benchmarks benchmarks
RUN python -m venv /opt/morrow \
    && /opt/morrow/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0 \
    && /opt/morrow/bin/pip install --no-cache-dir -c constraints.txt '.[trainer,gbdt]'

FROM python:3.12-slim
# LightGBM, which stands beside us as a rival, is linked to the system's OpenMP.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# The folder for state exists and is ours, so that a fresh volume mounted on it is ours too.
RUN groupadd --gid 10001 morrow \
    && useradd --uid 10001 --gid morrow --create-home --shell /usr/sbin/nologin morrow \
    && install --directory --owner=morrow --group=morrow /var/lib/morrow
COPY --from=build /opt/morrow /opt/morrow
ENV PATH=/opt/morrow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MORROW_HOME=/var/lib/morrow \
    MPLCONFIGDIR=/tmp/matplotlib
USER 10001:10001
VOLUME /var/lib/morrow
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=3 CMD ["morrow", "trainer", "--check"]
CMD ["morrow", "trainer"]
