{{- define "morrow.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "morrow.labels" -}}
app.kubernetes.io/name: morrow
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
{{- end -}}

{{- define "morrow.selector" -}}
app.kubernetes.io/name: morrow
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "morrow.image" -}}
{{- $name := printf "%s:%s" .repository (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- if .root.Values.image.registry -}}
{{- printf "%s/%s" .root.Values.image.registry $name | quote -}}
{{- else -}}
{{- $name | quote -}}
{{- end -}}
{{- end -}}

{{- define "morrow.databaseUrl" -}}
{{- if .Values.postgresql.enabled -}}
postgresql://morrow@{{ include "morrow.name" . }}-postgresql:5432/morrow
{{- else -}}
{{- required "database.url is empty: name your PostgreSQL, or set postgresql.enabled=true" .Values.database.url -}}
{{- end -}}
{{- end -}}

{{- define "morrow.mlflowUrl" -}}
{{- if .Values.mlflow.enabled -}}
http://{{ include "morrow.name" . }}-mlflow:5000
{{- else -}}
{{- required "tracking.url is empty: name your MLflow, or set mlflow.enabled=true" .Values.tracking.url -}}
{{- end -}}
{{- end -}}

{{- define "morrow.databaseSecret" -}}
{{- required "database.passwordSecret.name is empty: name the secret with the password" .Values.database.passwordSecret.name -}}
{{- end -}}

{{- define "morrow.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "morrow.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "morrow.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "morrow.environment" -}}
- name: MORROW_DATABASE_URL
  value: {{ include "morrow.databaseUrl" . | quote }}
- name: MORROW_DATABASE_PASSWORD_FILE
  value: {{ printf "/run/secrets/database/%s" .Values.database.passwordSecret.key | quote }}
- name: MORROW_MLFLOW_URL
  value: {{ include "morrow.mlflowUrl" . | quote }}
{{- if and .Values.tracking.passwordSecret.name (not .Values.mlflow.enabled) }}
- name: MORROW_MLFLOW_PASSWORD_FILE
  value: {{ printf "/run/secrets/tracking/%s" .Values.tracking.passwordSecret.key | quote }}
{{- end }}
- name: MORROW_HOME
  value: /var/lib/morrow
- name: MORROW_LOG_FORMAT
  value: json
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "morrow.mounts" -}}
- {name: home, mountPath: /var/lib/morrow}
- {name: tmp, mountPath: /tmp}
- {name: database, mountPath: /run/secrets/database, readOnly: true}
{{- if and .Values.tracking.passwordSecret.name (not .Values.mlflow.enabled) }}
- {name: tracking, mountPath: /run/secrets/tracking, readOnly: true}
{{- end }}
{{- end -}}

{{- define "morrow.secretVolumes" -}}
- name: tmp
  emptyDir: {}
- name: database
  secret:
    secretName: {{ include "morrow.databaseSecret" . | quote }}
    defaultMode: 0440
{{- if and .Values.tracking.passwordSecret.name (not .Values.mlflow.enabled) }}
- name: tracking
  secret:
    secretName: {{ .Values.tracking.passwordSecret.name | quote }}
    defaultMode: 0440
{{- end }}
{{- end -}}
