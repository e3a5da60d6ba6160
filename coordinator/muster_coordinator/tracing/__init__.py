"""Spans of what takes long, for a collector of OpenTelemetry. A process without one imports none of its packages."""
