"""What sends: base.py has the protocol, each other module one way to do it."""
