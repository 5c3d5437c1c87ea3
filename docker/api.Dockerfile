# The API and the migrations: no torch, no MLflow. Build from the repository's root.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md constraints.txt ./
COPY contracts contracts
COPY service service
COPY trainer trainer
COPY cli cli
COPY migrations migrations
COPY benchmarks benchmarks
RUN python -m venv /opt/morrow && /opt/morrow/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.12-slim
# The folder for state exists and is ours, so that a fresh volume mounted on it is ours too.
RUN groupadd --gid 10001 morrow \
    && useradd --uid 10001 --gid morrow --create-home --shell /usr/sbin/nologin morrow \
    && install --directory --owner=morrow --group=morrow /var/lib/morrow
COPY --from=build /opt/morrow /opt/morrow
ENV PATH=/opt/morrow/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MORROW_HOME=/var/lib/morrow \
    MORROW_HOST=0.0.0.0 \
    MORROW_PORT=8000
USER 10001:10001
VOLUME /var/lib/morrow
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/livez', timeout=4)"]
CMD ["morrow", "serve"]
