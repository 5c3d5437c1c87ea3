#!/bin/sh
# Run MLflow with secrets from files. MLflow reads secrets from its environment only, so NAME is set to the content of the
# file in NAME_FILE. Neither image, compose file nor `docker inspect` shows a secret.
set -eu

for name in PGPASSWORD MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY; do
  file=$(printenv "${name}_FILE") || continue
  secret=$(cat "$file")
  [ -n "$secret" ] || { echo "$file is empty." >&2; exit 1; }
  export "$name=$secret"
  unset "${name}_FILE"
done

exec "$@"
