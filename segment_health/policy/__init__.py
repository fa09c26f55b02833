"""What a node's faults are worth: the contract's table of states, and above it the rules of a site."""
