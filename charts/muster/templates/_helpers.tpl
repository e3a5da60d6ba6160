{{/* Name of everything that belongs to the operator: "muster-operator" for a release called muster. */}}
{{- define "muster.operator" -}}
{{ printf "%s-operator" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "muster.labels" -}}
app.kubernetes.io/name: {{ include "muster.operator" . }}
app.kubernetes.io/part-of: muster
{{- end -}}
