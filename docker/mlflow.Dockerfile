# The MLflow server: runs, registry and artefacts, which it hands out itself, so that no client needs the store behind. Build
# from the repository's root.

FROM python:3.12-slim
COPY constraints.txt /etc/constraints.txt
RUN groupadd --gid 10002 mlflow \
    && useradd --uid 10002 --gid mlflow --create-home --shell /usr/sbin/nologin mlflow \
    && install --directory --owner=mlflow --group=mlflow /var/lib/mlflow \
    && pip install --no-cache-dir -c /etc/constraints.txt mlflow==3.17.2 'psycopg[binary]==3.3.*'
USER 10002:10002
VOLUME /var/lib/mlflow
EXPOSE 5000
# The first start makes the tables: up to two minutes on a slow machine.
HEALTHCHECK --interval=10s --timeout=5s --start-period=300s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:5000/health', timeout=4)"]
CMD ["mlflow", "server", "--host", "0.0.0.0", "--port", "5000"]
