"""Whether a call may run, must not, or is asked about first."""
