"""The custom resources: models, conditions, durations, and the definitions made of them. Imports nothing of ours."""
