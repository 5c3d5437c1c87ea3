# The trainer. Build from the repository's root.
#
# On Linux the default index holds the CUDA build of torch, which runs on CPUs too. To get the much smaller CPU build, set
# TORCH_INDEX to an index that holds it. EXTRA=ray adds what MORROW_EXECUTOR=ray needs.

ARG PYTHON_IMAGE=python:3.12.13-slim-trixie

# Dependencies come before Morrow itself: a change of our code leaves these layers unchanged.
FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX=""
ARG EXTRA=""
WORKDIR /source
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir uv==0.13.9 \
    && python -m venv --without-pip /opt/morrow
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 UV_PYTHON=/opt/morrow/bin/python
RUN /opt/build/bin/uv pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
COPY pyproject.toml constraints.txt ./
RUN /opt/build/bin/uv pip install --constraint constraints.txt --requirement pyproject.toml --extra trainer --extra gbdt \
    ${EXTRA:+--extra "$EXTRA"}
COPY README.md LICENSE ./
COPY contracts contracts
COPY store store
COPY service service
COPY trainer trainer
COPY cli cli
COPY estimators estimators
COPY migrations migrations
RUN /opt/build/bin/uv pip install --constraint constraints.txt --no-deps .

FROM ${PYTHON_IMAGE}
# LightGBM, a rival of our networks, is linked to the system's OpenMP.
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
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    MORROW_HOME=/var/lib/morrow \
    MPLCONFIGDIR=/tmp/matplotlib
USER 10001:10001
VOLUME /var/lib/morrow
HEALTHCHECK --interval=30s --timeout=20s --start-period=120s --retries=3 CMD ["morrow", "trainer", "--check"]
CMD ["morrow", "trainer"]
