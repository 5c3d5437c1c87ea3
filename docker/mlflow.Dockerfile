# The MLflow server: runs, registry and artefacts. It serves artefacts itself, so no client needs access to their store.
# Build from the repository's root.

ARG PYTHON_IMAGE=python:3.12.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir uv==0.13.9 \
    && python -m venv --without-pip /opt/mlflow
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 UV_PYTHON=/opt/mlflow/bin/python
COPY constraints.txt /etc/constraints.txt
RUN /opt/build/bin/uv pip install --constraint /etc/constraints.txt 'mlflow[auth]==3.17.2' 'psycopg[binary]'

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10002 mlflow \
    && useradd --uid 10002 --gid mlflow --create-home --shell /usr/sbin/nologin mlflow \
    && install --directory --owner=mlflow --group=mlflow /var/lib/mlflow
COPY --from=build /opt/mlflow /opt/mlflow
COPY docker/with-secrets.sh /usr/local/bin/with-secrets
COPY docker/mlflow-auth.ini /etc/mlflow-auth.ini
COPY cli/local/mlflow_main.py /opt/mlflow_main.py
COPY docker/mlflow_health.py /opt/mlflow_health.py
ENV PATH=/opt/mlflow/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
USER 10002:10002
VOLUME /var/lib/mlflow
EXPOSE 5000
# The first start makes the tables: up to two minutes on a slow machine.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "/opt/mlflow_health.py", "http://127.0.0.1:5000", "127.0.0.1:5000"]
ENTRYPOINT ["with-secrets"]
CMD ["python", "/opt/mlflow_main.py", "server", "--host", "0.0.0.0", "--port", "5000", "--uvicorn-opts", "--no-access-log"]
