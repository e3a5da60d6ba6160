"""The custom resources: models, conditions, durations, and the definitions made of them. They import no other
package of this repository."""
