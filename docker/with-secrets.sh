#!/bin/sh
# Run MLflow, which takes secrets from its environment alone, with secrets that come as files: NAME is what the file that
# NAME_FILE names holds. So neither image, compose file nor `docker inspect` shows one.
set -eu

for name in PGPASSWORD MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY; do
  file=$(printenv "${name}_FILE") || continue
  secret=$(cat "$file")
  [ -n "$secret" ] || { echo "$file is empty." >&2; exit 1; }
  export "$name=$secret"
  unset "${name}_FILE"
done

exec "$@"
