"""`muster ui`: pages of what the commands of a person on call read, from a server that only reads."""
