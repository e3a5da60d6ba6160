"""Sites that take over from one another, by the code of pods and of `muster backup take-over`, over a store and clocks
that are made up."""
