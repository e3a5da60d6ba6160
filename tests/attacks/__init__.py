"""Attacks on real pods and gateways beside well-behaved members: `make attack` (docs/attacks.md)."""
