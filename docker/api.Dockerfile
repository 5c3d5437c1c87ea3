# The API and the migrations: no torch, no MLflow. Build from the repository's root.

ARG PYTHON_IMAGE=python:3.12.13-slim-trixie

# Dependencies come before Morrow itself: a change of our code leaves these layers unchanged.
FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir uv==0.13.9 \
    && python -m venv --without-pip /opt/morrow
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 UV_PYTHON=/opt/morrow/bin/python
COPY pyproject.toml constraints.txt ./
RUN /opt/build/bin/uv pip install --constraint constraints.txt --requirement pyproject.toml --extra sealed
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
# The folder for state exists and is ours, so that a fresh volume mounted on it is ours too.
RUN groupadd --gid 10001 morrow \
    && useradd --uid 10001 --gid morrow --create-home --shell /usr/sbin/nologin morrow \
    && install --directory --owner=morrow --group=morrow /var/lib/morrow
COPY --from=build /opt/morrow /opt/morrow
ENV PATH=/opt/morrow/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    MORROW_HOME=/var/lib/morrow \
    MORROW_HOST=0.0.0.0 \
    MORROW_PORT=8000
USER 10001:10001
VOLUME /var/lib/morrow
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import *; build_opener(ProxyHandler({})).open('http://127.0.0.1:8000/livez', timeout=4)"]
CMD ["morrow", "serve"]
